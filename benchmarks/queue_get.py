"""Getting from a queue and settling, beside what the storage below needs for it and beside other queues."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks import peers
from benchmarks.contest import Putting, put_batches, put_each, take_batches, take_each, take_round
from benchmarks.measure import Pick, Prepare, Work
from benchmarks.messages import AnyMessage, random_messages
from benchmarks.race import Race, Subject, turns
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.stores import TOPIC_LOG, Open, Quiver, QuiverPop
from benchmarks.workload import Bench, fresh_directory, fresh_log
from quivermq import DataDirectory, StorageSettings
from quivermq.settings import Durability

_BATCH = 100
# About as long as the note of a lease is.
_NOTE = bytes(32)
_GET_MANY, _GET, _POP = "get_many", "get", "pop"
_TWO_NOTES, _ONE_NOTE = "append of 2 notes each", "append of 1 note each"
_REAL_MANY = Goal("share", 0.5)

# How the messages that are to be got are put: it makes the frames that are read.
_Filling = Callable[[Sequence[AnyMessage]], Putting]


def queue_get(bench: Bench) -> Iterable[Race]:
    """In batches, then one by one; half of what a store holds is taken.

    Messages that were put one by one at `os` or `fsync` lie in a frame each, and cost the most to read.
    """
    scale = bench.scale
    name = f"get_many({_BATCH}) + ack at"
    whole: _Filling = partial(put_batches, _BATCH)
    yield _in_batches(bench, f"{name} buffered", "buffered", 2 * scale.queue_many, whole)
    yield _in_batches(bench, f"{name} os", "os", 2 * scale.queue_many, whole)
    yield _in_batches(bench, f"{name} os, put singly", "os", 2 * scale.queue_single, lambda _: put_each)
    yield _one_by_one(bench, "buffered", scale.queue_single)
    yield _one_by_one(bench, "os", scale.queue_single)
    yield _one_by_one(bench, "fsync", scale.queue_synced)


def _in_batches(bench: Bench, name: str, durability: Durability, number: int, filling: _Filling) -> Race:
    def contenders(shape: Shape) -> dict[str, Prepare]:
        messages = random_messages(number, shape)
        opens = partial(Quiver, durability=durability, shape=shape)
        putting, taking = filling(messages), take_batches(_BATCH)
        found: dict[str, Prepare] = {
            _GET_MANY: partial(take_round, bench, opens, messages, putting, taking),
            "reading the log's records": partial(_reading, bench, messages, putting),
        }
        if shape == "plain":
            word = peers.SYNCHRONOUS[durability]
            other = partial(peers.DiskCache, synchronous=word)
            theirs = messages[: 2 * bench.scale.peer_messages]
            found[f"diskcache transact, {word}"] = partial(
                take_round, bench, other, theirs, put_each, taking
            )
        return found

    subject = Subject(name, _GET_MANY, Goal("at least", 400e3), _REAL_MANY)
    return Race(contenders, [subject], turns(bench.scale.queue_rounds))


def _one_by_one(bench: Bench, durability: Durability, number: int) -> Race:
    """With acks, and popping: queues without acks do not do more than that."""
    is_synced = durability == "fsync"
    with_acks, without = peers.with_acks(durability), peers.without_acks(durability)

    def contenders(shape: Shape) -> dict[str, Prepare]:
        messages = random_messages(2 * number, shape)
        theirs = messages if is_synced else messages[: 2 * bench.scale.peer_messages]

        def taking(opens: Open, messages: Sequence[AnyMessage]) -> Prepare:
            return partial(take_round, bench, opens, messages, put_each, take_each)

        found: dict[str, Prepare] = {
            _GET: taking(partial(Quiver, durability=durability, shape=shape), messages),
            _POP: taking(partial(QuiverPop, durability=durability, shape=shape), messages),
            _TWO_NOTES: partial(_noting, bench, durability, number, 2),
            _ONE_NOTE: partial(_noting, bench, durability, number, 1),
        }
        if shape == "plain":
            found |= {name: taking(opens, theirs) for name, opens in {**with_acks, **without}.items()}
        return found

    pick: Pick = "median" if is_synced else "best"
    goal = None if is_synced else Goal("at least", 60e3)
    subjects = [
        Subject(f"get + ack at {durability}", _GET, goal, limits=[_TWO_NOTES, *with_acks]),
        Subject(f"pop at {durability}", _POP, limits=[_ONE_NOTE, *without]),
    ]
    return Race(contenders, subjects, turns(bench.scale.queue_rounds, pick))


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
def _reading(bench: Bench, messages: Sequence[AnyMessage], filling: Putting) -> Iterator[Work]:
    """The same frames, only read."""
    with fresh_directory(bench.place) as path:
        store = Quiver(path, "os")
        filling(store, messages)
        store.close()
        with DataDirectory(path) as data:
            log = data.log(TOPIC_LOG)
            yield lambda: sum(1 for _ in log.records())
