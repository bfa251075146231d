"""Threads that a test holds at a place of its choice."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

from support.faulty_disk import FaultyDisk

T = TypeVar("T")

# A test that waits this long has failed; on a busy machine nothing may be shorter.
PATIENCE_S = 60


def wait_until(condition: Callable[[], object]) -> None:
    """Let other threads go on until something is true. pytest's timeout ends what never comes true."""
    while not condition():
        os.sched_yield()


def start(call: Callable[[], T]) -> "Future[T]":
    """Run a call in a thread of its own, which does not keep the process alive should it hang."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class Gate:
    """Holds the first thread that comes to a step of the disk, until it is opened."""

    def __init__(self, disk: FaultyDisk, operation: str, glob: str = "*") -> None:
        self._wanted = (operation, glob)
        self._arrived = threading.Event()
        self._opened = threading.Event()
        self._guard = threading.Lock()
        disk.before_step = self._hold

    def wait(self) -> None:
        """Return once a thread stands at the gate."""
        assert self._arrived.wait(PATIENCE_S), "nobody came to the gate"

    def open(self) -> None:
        self._opened.set()

    def _hold(self, operation: str, path: Path) -> None:
        if operation != self._wanted[0] or not fnmatch(str(path), self._wanted[1]):
            return
        with self._guard:
            is_first = not self._arrived.is_set()
            self._arrived.set()
        if is_first:
            assert self._opened.wait(PATIENCE_S), "nobody opened the gate"
