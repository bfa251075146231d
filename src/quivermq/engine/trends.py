"""Where the disk goes, and how it does lately: what one look at a gauge or a histogram cannot tell."""

import threading
from collections import deque

from quivermq.metrics import percentile_between

_MINUTE_US = 60_000_000
# Prometheus is asked for the last hour of the one, and for the last five minutes of the other.
_FREE_KEPT = 60
_SYNCS_KEPT = 5


class Trends:
    """A point a minute. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: deque[tuple[int, int]] = deque(maxlen=_FREE_KEPT)
        self._syncs: deque[tuple[int, list[int]]] = deque(maxlen=_SYNCS_KEPT)
        self._latest: list[int] | None = None

    def see(self, free_bytes: int, syncs: list[int], now_us: int) -> None:
        """Take in the room on the disk, and the tally of how long syncs took."""
        with self._lock:
            self._latest = syncs
            if not self._free or now_us - self._free[-1][0] >= _MINUTE_US:
                self._free.append((now_us, free_bytes))
                self._syncs.append((now_us, syncs))

    def free_bytes_in(self, seconds: float) -> float | None:
        """The room that there will be so long after the last point: a straight line through all of them."""
        with self._lock:
            points = list(self._free)
        if len(points) < 2:
            return None
        end_us = points[-1][0]
        times = [(time_us - end_us) / 1_000_000 for time_us, _ in points]
        mean_time = sum(times) / len(times)
        mean_free = sum(free for _, free in points) / len(points)
        spread = sum((time - mean_time) ** 2 for time in times)
        rise = sum(
            (time - mean_time) * (free - mean_free) for time, (_, free) in zip(times, points, strict=True)
        )
        return mean_free + rise / spread * (seconds - mean_time)

    def sync_p99_s(self) -> float | None:
        """What one sync in a hundred took longer than, in the last minutes; None when there was none."""
        with self._lock:
            if self._latest is None:
                return None
            return percentile_between(self._syncs[0][1], self._latest, 0.99)
