"""A clock that stands still until a test moves it."""

import threading


class ManualClock:
    """A `quivermq.clock.Clock` whose wall time and monotonic time move apart only by `jump`."""

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        # Whole microseconds: a sum of floats would drift away from what the test added up.
        self._wall_us = start_us
        self._elapsed_us = 0
        self._guard = threading.Lock()

    def now_us(self) -> int:
        return self._wall_us

    def monotonic(self) -> float:
        return self._elapsed_us / 1_000_000

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        if seconds < 0:
            raise ValueError(f"time cannot pass backwards, by {seconds} s: use jump")
        with self._guard:
            self._wall_us += round(seconds * 1_000_000)
            self._elapsed_us += round(seconds * 1_000_000)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forwards or backwards, as a time server or a person does."""
        with self._guard:
            self._wall_us += round(seconds * 1_000_000)
