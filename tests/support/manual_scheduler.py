"""A scheduler without a thread: what is due runs when the test says so."""

import heapq
from collections.abc import Callable
from itertools import count

from support.manual_clock import ManualClock


class ManualScheduler:
    """A `quivermq.log.flusher.Scheduler` that goes by a `ManualClock`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self.is_closed = False

    def schedule(self, after_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (self._clock.monotonic() + after_s, next(self._number), call))

    def run_due(self) -> int:
        """Call everything that is due by now, in order, and return how much that was."""
        done = 0
        while self._calls and self._calls[0][0] <= self._clock.monotonic():
            heapq.heappop(self._calls)[2]()
            done += 1
        return done

    def close(self) -> None:
        self.is_closed = True
        self._calls.clear()
