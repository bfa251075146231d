"""Calculates what a large cluster asks of its store and etcd, and what that costs: a model, no measurement.

It writes the tables in docs/internals/cluster-at-scale.md, which says what is assumed and what follows.

An owner commits one chunk at a time, and what arrives meanwhile is the next one. So a shard finds its own
pace: the chunk is what arrives during one commit, and the commit takes as long as the chunk is large.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/internals/cluster-at-scale.md"
BEGIN, END = "<!-- scale tables -->", "<!-- end of the scale tables -->"

MB = 1e6
GB = 1e9
SECONDS_PER_MONTH = 30 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What the store, etcd and the limits of a shard are taken to be."""

    put_s: float = 0.040
    """How long the store takes for a small object."""
    put_bytes_per_s: float = 80 * MB
    """How fast one connection sends a large one."""
    transaction_s: float = 0.003
    shipped_per_byte: float = 1.04
    """Bytes of chunks for each byte of frames."""
    chunk_bytes_max: float = 8 * 2**20
    checkpoint_bytes: float = 16 * 2**20
    checkpoint_chunks: int = 256
    segment_bytes: float = 64 * 2**20
    etcd_transactions_per_s: float = 10_000.0
    """What a well kept etcd of three takes."""
    put_dollars: float = 0.005 / 1000
    get_dollars: float = 0.0004 / 1000
    gb_month_dollars: float = 0.023
    standbys: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """How a cluster is cut, and what is put into it."""

    brokers: int
    shards: int
    partitions: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a load comes to, for the whole cluster."""

    chunk_bytes: float
    commit_s: float
    puts_per_s: float
    gets_per_s: float
    transactions_per_s: float
    dollars_per_month: float
    limit: str
    """What breaks, or breaks first when more is put."""


def cost_of(load: Load, given: Assumptions) -> Cost | None:
    """None when the shards cannot take it: what arrives during a commit is more than a chunk may have."""
    rate = load.bytes_per_s * given.shipped_per_byte / load.shards
    fixed_s = given.put_s + given.transaction_s
    if rate >= given.put_bytes_per_s:
        return None
    chunk_bytes = rate * fixed_s / (1 - rate / given.put_bytes_per_s)
    if chunk_bytes > given.chunk_bytes_max:
        return None
    commit_s = fixed_s + chunk_bytes / given.put_bytes_per_s
    commits = load.shards / commit_s
    checkpoints = max(load.shards * rate / given.checkpoint_bytes, commits / given.checkpoint_chunks)
    # The part that a growing file has got since the last checkpoint, and in the end each segment whole.
    parts = checkpoints + load.bytes_per_s / given.segment_bytes
    puts = commits + checkpoints + parts
    gets = given.standbys * (commits + checkpoints)
    # Half of a lease of five seconds and more passes between two keepalives of a broker.
    transactions = commits + checkpoints + load.brokers / 2
    dollars = SECONDS_PER_MONTH * (puts * given.put_dollars + gets * given.get_dollars)
    return Cost(chunk_bytes, commit_s, puts, gets, transactions, dollars, _limit(rate, transactions, given))


def _limit(rate: float, transactions: float, given: Assumptions) -> str:
    if transactions > given.etcd_transactions_per_s:
        return "**etcd**"
    share_of_shard = rate / most_of_a_shard(given)
    share_of_etcd = transactions / given.etcd_transactions_per_s
    if share_of_shard > share_of_etcd:
        return f"the commits of a shard ({share_of_shard:.0%})"
    return f"etcd ({share_of_etcd:.0%})"


def most_of_a_shard(given: Assumptions) -> float:
    """How many bytes of chunks a second one shard can commit."""
    chunk = given.chunk_bytes_max
    return chunk / (given.put_s + given.transaction_s + chunk / given.put_bytes_per_s)


def _rows(given: Assumptions) -> Iterator[str]:
    yield (
        "| shards | a shard takes | chunk | commit | store: puts/s | gets/s | etcd: transactions/s"
        " | requests a month | breaks first |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for shards in (16, 32, 64, 100, 200, 400, 1600):
        load = Load(brokers=100, shards=shards, partitions=10_000, bytes_per_s=GB)
        cost = cost_of(load, given)
        head = f"| {shards} | {load.bytes_per_s / shards / MB:.1f} MB/s |"
        if cost is None:
            yield f"{head} | | | | | | **a shard cannot take it** |"
            continue
        yield (
            f"{head} {cost.chunk_bytes / 1e3:,.0f} KB | {cost.commit_s * 1e3:.0f} ms |"
            f" {cost.puts_per_s:,.0f} | {cost.gets_per_s:,.0f} | {cost.transactions_per_s:,.0f} |"
            f" ${cost.dollars_per_month:,.0f} | {cost.limit} |"
        )


def _quiet_rows(given: Assumptions) -> Iterator[str]:
    yield "| put into each shard | commits/s of a shard | 100 shards a month |"
    yield "|---|---|---|"
    for words, commits in (
        ("nothing", 0.0),
        ("a message a minute", 1 / 60),
        ("a message a second", 1.0),
        ("ten messages a second", 10.0),
        ("more than that, at `os` once a second", 1.0),
    ):
        puts = commits * (1 + 1 / given.checkpoint_chunks)
        gets = given.standbys * puts
        dollars = 100 * SECONDS_PER_MONTH * (puts * given.put_dollars + gets * given.get_dollars)
        yield f"| {words} | {commits:.3g} | ${dollars:,.0f} |"


def tables(given: Assumptions | None = None) -> str:
    """Both tables, as the page has them."""
    given = given or Assumptions()
    return "\n".join((*_rows(given), "", *_quiet_rows(given)))


def with_tables(page: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Write the tables."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
