"""One after the other: several streams may write to one data directory, which one process has at a time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Disk
from quivermq.errors import DirectoryLocked, Unavailable

LOCK = "spark.lock"
# As long as a large batch takes: the lock of whoever dies is free at once.
_TURN_WAIT_S = 1800.0
_PAUSE_S = 0.02

T = TypeVar("T")


def patiently(take: Callable[[], T], wait_s: float, clock: Clock | None = None) -> T:
    """What `take` returns as soon as nobody else has the lock. Raises DirectoryLocked after `wait_s`."""
    clock = clock or SystemClock()
    deadline = clock.monotonic() + wait_s
    while True:
        try:
            return take()
        except DirectoryLocked:
            if clock.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)


@contextmanager
def turn(disk: Disk, path: Path, *, wait_s: float = _TURN_WAIT_S) -> Iterator[None]:
    """Commit to a data directory while no other write from Spark does. Raises Unavailable.

    The directory's own lock cannot tell a sink of the same pipeline, which is done in a moment, from a
    program that keeps the directory open.
    """
    disk.make_directory(path)
    try:
        lock = patiently(lambda: disk.lock(path / LOCK), wait_s)
    except DirectoryLocked as error:
        raise Unavailable(
            f"another write from Spark, in process {error.pid}, has been committing to {path} for"
            f" {wait_s:.0f} s: look what it waits for, and start this one again"
        ) from error
    try:
        yield
    finally:
        lock.release()
