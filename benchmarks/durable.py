"""Durability `fsync`: one thread beside the bare system calls, and many that share each sync."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.measure import Measured, Pick, Prepare, Work, alternate, ready
from benchmarks.messages import AnyMessage, call_each, frame_bytes, random_messages
from benchmarks.race import Entry, Race, Run, Subject
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.timed_disk import TimedDisk
from benchmarks.workload import Bench, fresh_log, plain_file
from quivermq import Log, StorageSettings

_SETTINGS = StorageSettings(durability="fsync")
_APPEND = "append"
_THREADS = 64
# How many rings of threads hand a lock round.
_RINGS = {1: "a ring", 2: "two rings", 8: "eight rings"}


@dataclass(frozen=True, slots=True)
class _Place:
    """A log with a disk that keeps the time, and a plain file."""

    log: Log
    disk: TimedDisk
    plain: int


_Places = Mapping[Shape, _Place]


def fsync_one(bench: Bench) -> Iterable[Race]:
    """One thread. Small rounds in turns and the median of each, because a disk's latency drifts."""
    subject = Subject("append at fsync, 1 thread", _APPEND, Goal("share", 0.9))
    with _places(bench) as places:
        run = _watched(places, bench.scale.sync_rounds, "median")
        yield Race(partial(_in_one, bench, places), [subject], run)


def fsync_many(bench: Bench) -> Iterable[Race]:
    """64 threads beside a sync for each 64 messages, and beside threads that only wake each other."""
    subject = Subject("append at fsync, 64 threads", _APPEND, Goal("at least", 36e3))
    with _places(bench) as places:
        run = _watched(places, bench.scale.thread_rounds, "best")
        yield Race(partial(_in_many, bench, places), [subject], run)


def _in_one(bench: Bench, places: _Places, shape: Shape) -> dict[str, Prepare]:
    place, number = places[shape], bench.scale.sync_appends
    messages = random_messages(1, shape)
    return {
        _APPEND: ready(partial(_append, place.log, messages[0], number)),
        "os.write + fdatasync": ready(partial(_write, place.plain, frame_bytes(messages), number)),
    }


def _in_many(bench: Bench, places: _Places, shape: Shape) -> dict[str, Prepare]:
    place, number = places[shape], bench.scale.thread_appends
    messages = random_messages(_THREADS, shape)
    frame = frame_bytes(messages)
    return {
        _APPEND: partial(_in_threads, partial(_append, place.log, messages[0], number)),
        "write + fdatasync alone, x 64": ready(
            partial(_write, place.plain, frame, number, messages_each=_THREADS)
        ),
        **{f"64 threads in {rings}": partial(_rings, number, count) for count, rings in _RINGS.items()},
    }


@contextmanager
def _places(bench: Bench) -> Iterator[dict[Shape, _Place]]:
    with ExitStack() as stack:
        places: dict[Shape, _Place] = {}
        for shape in bench.shapes:
            disk = TimedDisk()
            log = stack.enter_context(fresh_log(bench, _SETTINGS, disk))
            places[shape] = _Place(log, disk, stack.enter_context(plain_file(bench)))
            disk.sync_s = 0.0
        yield places


def _watched(places: _Places, rounds: int, pick: Pick) -> Run:
    """Turns after which each log's disk says how long it made others wait."""

    def run(entered: Mapping[Entry, Prepare]) -> dict[Entry, Measured]:
        seen = alternate(entered, rounds, pick)
        for shape, place in places.items():
            seen[shape, _APPEND] = replace(seen[shape, _APPEND], sync_s=place.disk.sync_s)
        return seen

    return run


def _append(log: Log, message: AnyMessage, number: int) -> int:
    call_each(log.append, [message] * number)
    return number


def _write(descriptor: int, frame: bytes, number: int, *, messages_each: int = 1) -> int:
    for _ in range(number):
        os.write(descriptor, frame)
        os.fdatasync(descriptor)
    return messages_each * number


@contextmanager
def _in_threads(task: Callable[[], int]) -> Iterator[Work]:
    """The same task in every thread; they are running, and held back until the time runs."""
    start = threading.Event()
    done: list[int] = []

    def run() -> None:
        start.wait()
        done.append(task())

    threads = [threading.Thread(target=run, daemon=True) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()

    def work() -> int:
        start.set()
        for thread in threads:
            thread.join()
        return sum(done)

    yield work


@contextmanager
def _rings(rounds: int, count: int) -> Iterator[Work]:
    """Threads in rings: each waits for its own lock and then frees its neighbour's.

    A thread that waits for its commit has to be woken, so this is what is left of a group commit
    when everything is taken away but the waking. More rings wake more threads at once.
    """
    locks = [threading.Lock() for _ in range(_THREADS)]
    for lock in locks:
        lock.acquire()
    size = _THREADS // count

    def run(place: int) -> None:
        ring = place - place % size
        mine, next_one = locks[place], locks[ring + (place + 1) % size]
        for _ in range(rounds):
            mine.acquire()
            next_one.release()

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(_THREADS)]
    for thread in threads:
        thread.start()

    def work() -> int:
        for lock in locks[::size]:
            lock.release()
        for thread in threads:
            thread.join()
        return _THREADS * rounds

    yield work
