"""The one background thread of a queue: it comes back to a log when something there falls due."""

import heapq
import logging
import threading
from collections.abc import Callable
from itertools import count
from typing import Protocol

from quivermq.clock import Clock
from quivermq.errors import Closing, QuiverError
from quivermq.helping import Condition, Helper

logger = logging.getLogger(__name__)


class Scheduler(Protocol):
    """Calls back later. Tests have one that they turn by hand."""

    def schedule(self, after_s: float, call: Callable[[], None]) -> None:
        """Call `call` once, from another thread, about `after_s` seconds from now."""
        ...

    def close(self) -> None:
        """Call nothing any more. Returns once a call that is running has ended."""
        ...


class Flusher:
    """A scheduler with a thread, which is started when it is first needed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._condition = Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._thread = Helper(self._run, "quiver-flusher")
        self._is_closed = False

    def schedule(self, after_s: float, call: Callable[[], None]) -> None:
        with self._condition.lock:
            if self._is_closed:
                return
            heapq.heappush(self._due, (self._clock.monotonic() + after_s, next(self._number), call))
            self._thread.start()
            if self._due[0][2] is call:
                self._condition.notify_all()

    def close(self) -> None:
        with self._condition.lock:
            self._is_closed = True
            self._condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (call := self._wait()) is not None:
            try:
                call()
            except Closing:
                # Whoever closed or deleted the log meanwhile has seen to what was left to write.
                continue
            except QuiverError as error:
                # The log keeps what it could not write and reports it to the next caller; here it is noted.
                logger.error("background write failed: %s", error)
            except Exception:
                # A bug, or no memory: one log must not keep the others from being written.
                logger.exception("background write failed")

    def _wait(self) -> Callable[[], None] | None:
        with self._condition.lock:
            while not self._is_closed:
                if not self._due:
                    self._condition.wait()
                    continue
                wait_s = self._due[0][0] - self._clock.monotonic()
                if wait_s <= 0:
                    return heapq.heappop(self._due)[2]
                self._condition.wait(min(wait_s, threading.TIMEOUT_MAX))
        return None
