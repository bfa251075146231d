"""Which servers take part, and what to say of those that are not installed."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.broker.nats import NATS
from benchmarks.broker.redis import REDIS
from benchmarks.broker.server import Kind, Server
from benchmarks.row import Skipped
from benchmarks.workload import Bench, fresh_directory
from quivermq.settings import Durability

PEERS = (NATS, REDIS)
DURABILITIES: tuple[Durability, ...] = ("os", "fsync")


def missing_peers(bench: Bench) -> list[Skipped]:
    """A line for each peer that is wanted and not here."""
    wanted = () if bench.is_alone else PEERS
    return [Skipped(kind.name, kind.obstacle) for kind in wanted if kind.obstacle is not None]


@contextmanager
def started(bench: Bench, durability: Durability, kinds: Sequence[Kind]) -> Iterator[dict[str, Server]]:
    """Those of the servers that are installed, by name; all run at once, and only one has work.

    The first is ours. It is alone where no limits are measured.
    """
    if bench.is_alone:
        kinds = kinds[:1]
    with ExitStack() as stack:
        place = stack.enter_context(fresh_directory(bench.place))
        yield {
            kind.name: stack.enter_context(kind.start(place / f"server{number}", durability))
            for number, kind in enumerate(kinds)
            if kind.obstacle is None
        }
