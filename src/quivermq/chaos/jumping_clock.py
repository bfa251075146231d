"""A clock that somebody sets while others look at it, also from another process."""

import mmap
import os
from pathlib import Path
from struct import Struct

from quivermq.clock import SystemClock

_SHIFT = Struct("<q")


class JumpingClock:
    """The machine's clock, wrong by as much as a small file says. Time that passes is told truly."""

    def __init__(self, path: Path) -> None:
        self._clock = SystemClock()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, _SHIFT.size)
            self._shared = mmap.mmap(descriptor, _SHIFT.size)
        finally:
            os.close(descriptor)

    def now_us(self) -> int:
        shift_us: int = _SHIFT.unpack(self._shared[:])[0]
        return self._clock.now_us() + shift_us

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def set(self, shift_s: float) -> None:
        """Let it be wrong by so many seconds, for everybody who has the file open."""
        self._shared[:] = _SHIFT.pack(round(shift_s * 1_000_000))
