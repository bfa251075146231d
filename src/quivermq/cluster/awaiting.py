"""Waiting for messages of several shards at once, without asking again and again.

For each shard, a thread waits there as long as somebody wants to know, and takes nothing. So nothing has to
be given back by those that were not first.
"""

import threading
from _thread import LockType, allocate_lock
from collections.abc import Callable, Collection

from quivermq.errors import QuiverError

# A wait at a shard ends after so long, when nobody wants to know any more.
_SLICE_S = 10.0
# How late a signal, or the end of the connection, may be noticed.
_LOOK_S = 0.5


class Awaiting:
    """Who waits for one topic, or pattern, and one group. Thread-safe.

    `wait_at` waits at a shard for so many seconds, and tells whether there seems to be something.
    """

    def __init__(self, wait_at: Callable[[int, float], bool]) -> None:
        self._wait_at = wait_at
        self._lock = threading.Lock()
        # Those who wait now: a lock each, which is released to wake them.
        self._waiting: dict[int, LockType] = {}
        self._watched: set[int] = set()
        self._ready: set[int] = set()
        self._is_closed = False

    def take_ready(self) -> set[int]:
        """The shards that have said there is something, or that something is wrong, since the last time."""
        with self._lock:
            found, self._ready = self._ready, set()
        return found

    def quiet(self) -> set[int]:
        """The shards at which somebody waits, and nothing has come yet: to ask them is of no use."""
        with self._lock:
            return self._watched - self._ready

    def wait(self, shards: Collection[int], seconds: float) -> set[int]:
        """Wait for so many seconds at most, and return what is ready. May return early, with nothing."""
        woken = allocate_lock()
        woken.acquire()
        with self._lock:
            if self._is_closed or not self._ready.isdisjoint(shards):
                found, self._ready = self._ready, set()
                return found
            self._waiting[id(woken)] = woken
            starting = [shard for shard in shards if shard not in self._watched]
            self._watched.update(starting)
        try:
            for shard in starting:
                threading.Thread(
                    target=self._watch, args=(shard,), name="quiver-await", daemon=True
                ).start()
            woken.acquire(timeout=min(seconds, _LOOK_S))
        finally:
            with self._lock:
                self._waiting.pop(id(woken), None)
        return self.take_ready()

    def close(self) -> None:
        """Let whoever waits go."""
        with self._lock:
            self._is_closed = True
            self._wake()

    def _watch(self, shard: int) -> None:
        """Wait at one shard until there is something, or nobody wants to know."""
        while True:
            try:
                is_ready = self._wait_at(shard, _SLICE_S)
            except QuiverError:
                # Whoever takes there is told what is wrong.
                is_ready = True
            with self._lock:
                if is_ready:
                    self._ready.add(shard)
                    self._wake()
                if is_ready or not self._waiting or self._is_closed:
                    self._watched.discard(shard)
                    return

    def _wake(self) -> None:
        for woken in self._waiting.values():
            if woken.locked():
                woken.release()
