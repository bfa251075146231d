"""Durability `fsync`: one thread beside the bare system calls, and many that share each sync."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.measure import Work, alternate, ready
from benchmarks.row import Goal, Row, first_row
from benchmarks.timed_disk import TimedDisk
from benchmarks.workload import Bench, frame_bytes, fresh_log, plain_file, random_messages
from quivermq.log import Log
from quivermq.settings import StorageSettings

_SETTINGS = StorageSettings(durability="fsync")
_THREADS = 64
# How many rings of threads hand a lock round.
_RINGS = {1: "a ring", 2: "two rings", 8: "eight rings"}


def fsync_one(bench: Bench) -> Iterable[Row]:
    """One thread. Small rounds in turns and the median of each, because a disk's latency drifts."""
    (value,) = random_messages(1)
    number = bench.scale.sync_appends
    with _log_and_file(bench) as (log, disk, plain):
        measured = alternate(
            {
                "append": ready(partial(_append, log, value, number)),
                "os.write + fdatasync": ready(partial(_write, plain, frame_bytes([value]), number)),
            },
            bench.scale.sync_rounds,
            pick="median",
        )
    goal = Goal("share", 0.9)
    yield first_row("append at fsync, 1 thread", measured, goal=goal, sync_s=disk.sync_s)


def fsync_many(bench: Bench) -> Iterable[Row]:
    """64 threads beside a sync for each 64 messages, and beside threads that only wake each other."""
    values = random_messages(_THREADS)
    number = bench.scale.thread_appends
    with _log_and_file(bench) as (log, disk, plain):
        measured = alternate(
            {
                "append": partial(_in_threads, partial(_append, log, values[0], number)),
                "write + fdatasync alone, x 64": ready(
                    partial(_write, plain, frame_bytes(values), number, messages_each=_THREADS)
                ),
                **{
                    f"64 threads in {rings}": partial(_rings, number, count)
                    for count, rings in _RINGS.items()
                },
            },
            bench.scale.thread_rounds,
        )
    goal = Goal("at least", 36e3)
    yield first_row("append at fsync, 64 threads", measured, goal=goal, sync_s=disk.sync_s)


@contextmanager
def _log_and_file(bench: Bench) -> Iterator[tuple[Log, TimedDisk, int]]:
    disk = TimedDisk()
    with fresh_log(bench, _SETTINGS, disk) as log, plain_file(bench) as plain:
        disk.sync_s = 0.0
        yield log, disk, plain
        sync_s = disk.sync_s
    # Closing the log syncs once more, but nobody was timing that.
    disk.sync_s = sync_s


def _append(log: Log, value: bytes, number: int) -> int:
    for _ in range(number):
        log.append(value)
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
