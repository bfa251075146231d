"""Letting the garbage collector rest while a journal is replayed.

A replay makes very many objects, and all of them stay. To look through them again and again would take as
long as making them.
"""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Rest:
    """How many threads want the collector to rest, and whether it is to work again afterwards."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.was_enabled = False

    def begin(self) -> None:
        with self.lock:
            if not self.count:
                self.was_enabled = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.was_enabled:
                gc.enable()

    def forget(self) -> None:
        """In a forked child: those who wanted it are threads that it does not have."""
        if self.count and self.was_enabled:
            gc.enable()
        self.lock, self.count = threading.Lock(), 0


_rest = _Rest()


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Switch the collector off while many objects are made, none of which can be freed.

    Only for a moment: meanwhile the whole process frees nothing that refers to itself. Several threads may
    be in here at once; whoever had the collector off before finds it so afterwards.
    """
    _rest.begin()
    try:
        yield
    finally:
        _rest.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rest.forget)
