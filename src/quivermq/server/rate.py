"""How many requests a second one client may make."""

import math
from collections.abc import Callable

# A bucket that is not in the table is full, so leaving one out only ever forgives.
_BUCKETS_MAX = 10_000


class RateLimit:
    """A bucket of tokens for each client: a request takes one, and every second brings `per_second`.

    A bucket holds one second's worth, so a client that was quiet may send that many at once.
    """

    def __init__(
        self, per_second: int, now: Callable[[], float], *, buckets_max: int = _BUCKETS_MAX
    ) -> None:
        self._per_second = per_second
        self._now = now
        self._buckets_max = buckets_max
        # By client: when its bucket would have been empty, had it run since then. Ordered by last use.
        self._empty_at: dict[str, float] = {}

    def take(self, client: str) -> bool:
        """Whether the client may make one more request now."""
        now = self._now()
        empty_at = max(self._empty_at.pop(client, -math.inf), now - 1.0)
        is_allowed = (now - empty_at) * self._per_second >= 1.0 - 1e-9
        if is_allowed:
            empty_at += 1.0 / self._per_second
        if len(self._empty_at) >= self._buckets_max:
            # The one that was used least recently, and so the fullest.
            del self._empty_at[next(iter(self._empty_at))]
        self._empty_at[client] = empty_at
        return is_allowed

    def __len__(self) -> int:
        return len(self._empty_at)
