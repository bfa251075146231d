"""Putting into a queue, beside the log below it and beside other queues."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks import peers
from benchmarks.contest import put_batches, put_each, put_round, threads_round
from benchmarks.measure import Pick, Prepare, Work
from benchmarks.messages import AnyMessage, call_each, columns_of, random_messages
from benchmarks.race import Race, Subject, turns
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.stores import Open, Quiver
from benchmarks.workload import Bench, fresh_log
from quivermq import StorageSettings
from quivermq.settings import Durability

_BATCH = 100
_PUT = "put"
_GOALS = {"buffered": Goal("at least", 500e3), "os": Goal("at least", 100e3), "fsync": None}
_REAL_ONE, _REAL_MANY = Goal("share", 0.6), Goal("share", 0.5)


def queue_put(bench: Bench) -> Iterable[Race]:
    """One by one at every durability, from many threads, and in batches."""
    scale = bench.scale
    yield _one_by_one(bench, "buffered", scale.queue_buffered)
    yield _one_by_one(bench, "os", scale.queue_single)
    yield _one_by_one(bench, "fsync", scale.queue_synced)
    run = turns(scale.queue_rounds)
    threads = Subject(f"put at fsync, {scale.queue_threads} threads", _PUT, Goal("at least", 20e3))
    yield Race(partial(_from_threads, bench), [threads], run)
    batches = Subject(f"put_many({_BATCH}) at os", _PUT, Goal("at least", 2e6), _REAL_MANY)
    yield Race(partial(_in_batches, bench), [batches], run)


def _one_by_one(bench: Bench, durability: Durability, number: int) -> Race:
    is_synced = durability == "fsync"

    def contenders(shape: Shape) -> dict[str, Prepare]:
        messages = random_messages(number, shape)
        theirs = messages if is_synced else messages[: bench.scale.peer_messages]
        others = {**peers.with_acks(durability), **peers.without_acks(durability)}
        return {
            _PUT: partial(put_round, bench, _quiver(durability, shape), messages, put_each),
            "append to the log": partial(_appending, bench, durability, messages),
            **_peers(
                shape,
                {
                    name: partial(put_round, bench, opens, theirs, put_each)
                    for name, opens in others.items()
                },
            ),
        }

    pick: Pick = "median" if is_synced else "best"
    goal = None if is_synced else _REAL_ONE
    subject = Subject(f"put at {durability}, 1 thread", _PUT, _GOALS[durability], goal)
    return Race(contenders, [subject], turns(bench.scale.queue_rounds, pick))


def _from_threads(bench: Bench, shape: Shape) -> dict[str, Prepare]:
    scale = bench.scale
    threads = scale.queue_threads
    messages = random_messages(threads * scale.thread_appends, shape)
    theirs = messages[: threads * scale.peer_thread_messages]
    others = peers.in_threads("fsync")
    return {
        _PUT: partial(threads_round, bench, _quiver("fsync", shape), messages, threads),
        "append to the log": partial(_appending_in_threads, bench, messages, threads),
        **_peers(
            shape,
            {name: partial(threads_round, bench, opens, theirs, threads) for name, opens in others.items()},
        ),
    }


def _in_batches(bench: Bench, shape: Shape) -> dict[str, Prepare]:
    messages = random_messages(bench.scale.queue_many, shape)
    theirs = messages[: 10 * bench.scale.peer_messages]
    putting = put_batches(_BATCH, theirs)
    others = peers.in_batches("os")
    return {
        _PUT: partial(put_round, bench, _quiver("os", shape), messages, put_batches(_BATCH, messages)),
        "append_many to the log": partial(_appending_many, bench, messages),
        **_peers(
            shape,
            {name: partial(put_round, bench, opens, theirs, putting) for name, opens in others.items()},
        ),
    }


def _peers(shape: Shape, others: dict[str, Prepare]) -> dict[str, Prepare]:
    """None of them has keys or headers, so they are beside plain messages only."""
    return others if shape == "plain" else {}


def _quiver(durability: Durability, shape: Shape) -> Open:
    return partial(Quiver, durability=durability, shape=shape)


@contextmanager
def _appending(bench: Bench, durability: Durability, messages: Sequence[AnyMessage]) -> Iterator[Work]:
    with fresh_log(bench, StorageSettings(durability=durability)) as log:

        def work() -> int:
            call_each(log.append, messages)
            log.flush()
            return log.end

        yield work


@contextmanager
def _appending_in_threads(bench: Bench, messages: Sequence[AnyMessage], threads: int) -> Iterator[Work]:
    with fresh_log(bench, StorageSettings(durability="fsync")) as log:
        parts = [messages[number::threads] for number in range(threads)]
        running = [threading.Thread(target=call_each, args=(log.append, part)) for part in parts]

        def work() -> int:
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            return log.end

        yield work


@contextmanager
def _appending_many(bench: Bench, messages: Sequence[AnyMessage]) -> Iterator[Work]:
    batches = [columns_of(messages[start : start + _BATCH]) for start in range(0, len(messages), _BATCH)]
    with fresh_log(bench, StorageSettings(durability="os")) as log:

        def work() -> int:
            append_many = log.append_many
            for values, others in batches:
                append_many(values, **others)
            return log.end

        yield work
