"""Putting into a queue, beside the log below it and beside other queues."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks import peers
from benchmarks.contest import put_batches, put_each, put_round, threads_round
from benchmarks.measure import Pick, Prepare, Work, alternate
from benchmarks.row import Goal, Row, first_row
from benchmarks.stores import Open, Quiver
from benchmarks.workload import Bench, fresh_log, random_messages
from quivermq.settings import Durability, StorageSettings

_BATCH = 100
_GOALS = {"buffered": Goal("at least", 500e3), "os": Goal("at least", 100e3), "fsync": None}


def queue_put(bench: Bench) -> Iterable[Row]:
    """One by one at every durability, from many threads, and in batches."""
    scale = bench.scale
    yield _one_by_one(bench, "buffered", scale.queue_buffered)
    yield _one_by_one(bench, "os", scale.queue_single)
    yield _one_by_one(bench, "fsync", scale.queue_synced)
    yield _from_threads(bench)
    yield _in_batches(bench)


def _one_by_one(bench: Bench, durability: Durability, number: int) -> Row:
    scale = bench.scale
    values = random_messages(number)
    is_synced = durability == "fsync"
    theirs = values if is_synced else values[: scale.peer_messages]
    contenders: dict[str, Prepare] = {
        "put": partial(put_round, bench, _quiver(durability), values, put_each),
        "append to the log": partial(_appending, bench, durability, values),
    }
    others = {**peers.with_acks(durability), **peers.without_acks(durability)}
    for name, opens in others.items():
        contenders[name] = partial(put_round, bench, opens, theirs, put_each)
    pick: Pick = "median" if is_synced else "best"
    measured = alternate(contenders, scale.queue_rounds, pick=pick)
    return first_row(f"put at {durability}, 1 thread", measured, goal=_GOALS[durability])


def _from_threads(bench: Bench) -> Row:
    scale = bench.scale
    threads = scale.queue_threads
    values = random_messages(threads * scale.thread_appends)
    theirs = values[: threads * scale.peer_thread_messages]
    contenders: dict[str, Prepare] = {
        "put": partial(threads_round, bench, _quiver("fsync"), values, threads),
    }
    for name, opens in peers.in_threads("fsync").items():
        contenders[name] = partial(threads_round, bench, opens, theirs, threads)
    measured = alternate(contenders, scale.queue_rounds)
    return first_row(f"put at fsync, {threads} threads", measured, goal=Goal("at least", 20e3))


def _in_batches(bench: Bench) -> Row:
    scale = bench.scale
    values = random_messages(scale.queue_many)
    theirs = values[: 10 * scale.peer_messages]
    contenders: dict[str, Prepare] = {
        "put": partial(put_round, bench, _quiver("os"), values, put_batches(_BATCH, values)),
        "append_many to the log": partial(_appending_many, bench, values),
    }
    for name, opens in peers.in_batches("os").items():
        contenders[name] = partial(put_round, bench, opens, theirs, put_batches(_BATCH, theirs))
    measured = alternate(contenders, scale.queue_rounds)
    return first_row(f"put_many({_BATCH}) at os", measured, goal=Goal("at least", 2e6))


def _quiver(durability: Durability) -> Open:
    return partial(Quiver, durability=durability)


@contextmanager
def _appending(bench: Bench, durability: Durability, values: Sequence[bytes]) -> Iterator[Work]:
    with fresh_log(bench, StorageSettings(durability=durability)) as log:

        def work() -> int:
            append = log.append
            for value in values:
                append(value)
            log.flush()
            return log.end

        yield work


@contextmanager
def _appending_many(bench: Bench, values: Sequence[bytes]) -> Iterator[Work]:
    batches = [list(values[start : start + _BATCH]) for start in range(0, len(values), _BATCH)]
    with fresh_log(bench, StorageSettings(durability="os")) as log:

        def work() -> int:
            append_many = log.append_many
            for batch in batches:
                append_many(batch)
            return log.end

        yield work
