"""Not faster than so many messages a second."""

import time

from quivermq.clock import Clock, SystemClock

# A frame is sent at once: with this share of a second in it, the rate is even enough.
_FRAMES_PER_SECOND = 10


class RateLimit:
    """Used by one thread."""

    def __init__(self, messages_per_second: float | None, clock: Clock | None = None) -> None:
        self._rate = messages_per_second
        self._clock = SystemClock() if clock is None else clock
        self._due_at = self._clock.monotonic()

    def frame_messages(self, usual: int) -> int:
        """How many messages a frame should have."""
        if self._rate is None:
            return usual
        return max(1, min(usual, int(self._rate / _FRAMES_PER_SECOND)))

    def wait_s(self, messages: int) -> float:
        """How long to wait before so many are sent. What was not used of the past is lost."""
        if self._rate is None:
            return 0.0
        now = self._clock.monotonic()
        start = max(now, self._due_at)
        self._due_at = start + messages / self._rate
        return start - now

    def wait(self, messages: int) -> None:
        """Wait that long."""
        if (seconds := self.wait_s(messages)) > 0:
            time.sleep(seconds)
