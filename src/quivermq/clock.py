"""Where time comes from. Nothing else in the package asks the system for it, so a test can move it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what people read and store, monotonic time for how long something took."""

    def now_us(self) -> int:
        """Microseconds since 1970 in UTC: the unit of every stored timestamp. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, from an arbitrary start."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()
