"""Where time comes from. Nothing else in the package asks the system for it, so a test can move it."""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Wall time for what people read and store, monotonic time for how long something took."""

    def now_us(self) -> int:
        """Microseconds since 1970 in UTC: the unit of every stored timestamp. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, from an arbitrary start."""
        ...


# Time that goes on while the machine sleeps, where the system has it: what falls due overnight is due.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.clock_gettime(_CLOCK)


class SteadyClock:
    """Wall time as it was when this was made, and from then on the time that has passed.

    Somebody may set the machine's clock while a queue is open: no lease may be lost and nothing be
    delivered early because of that. What people say about wall time goes through `from_wall`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Every put asks for the time: of the machine's own clock, without a detour.
        is_system = type(clock) is SystemClock
        self.monotonic: Callable[[], float] = (
            partial(time.clock_gettime, _CLOCK) if is_system else self._elapsed
        )
        self._start_us = clock.now_us() - round(clock.monotonic() * 1_000_000)

    def now_us(self) -> int:
        return self._start_us + round(self.monotonic() * 1_000_000)

    def _elapsed(self) -> float:
        return self._clock.monotonic()

    def from_wall(self, wall_us: int) -> int:
        """The moment that the machine's clock, as it is set now, would call `wall_us`."""
        return wall_us - self.jumped_us()

    def jumped_us(self) -> int:
        """How far the machine's clock has been moved since this was made."""
        return self._clock.now_us() - self.now_us()
