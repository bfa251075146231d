"""Getting from a queue and settling, beside what the storage below needs for it and beside other queues."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks import peers
from benchmarks.contest import Putting, put_batches, put_each, take_batches, take_each, take_round
from benchmarks.measure import Pick, Prepare, Work, alternate
from benchmarks.row import Goal, Row, row_of
from benchmarks.stores import TOPIC, Open, Quiver, QuiverPop
from benchmarks.workload import Bench, fresh_directory, fresh_log, random_messages
from quivermq.settings import Durability, StorageSettings

_BATCH = 100
# About as long as the note of a lease is.
_NOTE = bytes(32)
_READ = "reading the log's records"
_TWO_NOTES, _ONE_NOTE = "append of 2 notes each", "append of 1 note each"


def queue_get(bench: Bench) -> Iterable[Row]:
    """In batches, then one by one; half of what a store holds is taken.

    Messages that were put one by one at `os` or `fsync` lie in a frame each, and cost the most to read.
    """
    values = random_messages(2 * bench.scale.queue_many)
    whole = put_batches(_BATCH, values)
    yield _in_batches(bench, "buffered", values, whole)
    yield _in_batches(bench, "os", values, whole)
    yield _in_batches(bench, "os", values[: 2 * bench.scale.queue_single], put_each)
    yield from _one_by_one(bench, "buffered", bench.scale.queue_single)
    yield from _one_by_one(bench, "os", bench.scale.queue_single)
    yield from _one_by_one(bench, "fsync", bench.scale.queue_synced)


def _in_batches(bench: Bench, durability: Durability, values: list[bytes], filling: Putting) -> Row:
    scale = bench.scale
    theirs = values[: 2 * scale.peer_messages]
    opens, word = partial(Quiver, durability=durability), peers.SYNCHRONOUS[durability]
    other = partial(peers.DiskCache, synchronous=word)
    taking = take_batches(_BATCH)
    subject, *limits = alternate(
        {
            "get_many": partial(take_round, bench, opens, values, filling, taking),
            _READ: partial(_reading, bench, values, filling),
            f"diskcache transact, {word}": partial(take_round, bench, other, theirs, put_each, taking),
        },
        scale.queue_rounds,
    ).items()
    put = ", put singly" if filling is put_each else ""
    name = f"get_many({_BATCH}) + ack at {durability}{put}"
    return row_of(name, subject[1], dict(limits), goal=Goal("at least", 400e3))


def _one_by_one(bench: Bench, durability: Durability, number: int) -> Iterable[Row]:
    """With acks, and popping: queues without acks do not do more than that."""
    scale = bench.scale
    values = random_messages(2 * number)
    is_synced = durability == "fsync"
    theirs = values if is_synced else values[: 2 * scale.peer_messages]
    with_acks, without = peers.with_acks(durability), peers.without_acks(durability)

    def taking(opens: Open, values: Sequence[bytes]) -> Prepare:
        return partial(take_round, bench, opens, values, put_each, take_each)

    contenders: dict[str, Prepare] = {
        "get": taking(partial(Quiver, durability=durability), values),
        "pop": taking(partial(QuiverPop, durability=durability), values),
        _TWO_NOTES: partial(_noting, bench, durability, number, 2),
        _ONE_NOTE: partial(_noting, bench, durability, number, 1),
        **{name: taking(opens, theirs) for name, opens in {**with_acks, **without}.items()},
    }
    pick: Pick = "median" if is_synced else "best"
    measured = alternate(contenders, scale.queue_rounds, pick=pick)
    yield row_of(
        f"get + ack at {durability}",
        measured["get"],
        {name: measured[name] for name in (_TWO_NOTES, *with_acks)},
        goal=None if is_synced else Goal("at least", 60e3),
    )
    yield row_of(
        f"pop at {durability}", measured["pop"], {name: measured[name] for name in (_ONE_NOTE, *without)}
    )


@contextmanager
def _noting(bench: Bench, durability: Durability, number: int, notes: int) -> Iterator[Work]:
    """The least that a journal of what becomes of messages has to do."""
    with fresh_log(bench, StorageSettings(durability=durability)) as log:

        def work() -> int:
            append = log.append
            for _ in range(number * notes):
                append(_NOTE)
            log.flush()
            return log.end // notes

        yield work


@contextmanager
def _reading(bench: Bench, values: Sequence[bytes], filling: Putting) -> Iterator[Work]:
    """The same frames, only read."""
    with fresh_directory(bench.place) as path:
        store = Quiver(path, "os")
        filling(store, values)
        log = store.engine._directory.log(f"topics/{TOPIC}/p0/normal")

        def work() -> int:
            return sum(1 for _ in log.records())

        yield work
        store.close()
