"""Faults on purpose: what `quiver chaos` and the tests of the project do to a queue, and what must hold.

- `cases/`: the faults, what must hold in spite of each, and how each is tried; `run`: trying them for long.
- `trial`: where one attempt happens, and the seed it follows.
- `load`, `history`: a load that uses every feature, and all that it was told, held against the files.
- `processes`, `http_clients`: workers and brokers that start quickly and are killed, and their clients.
- `faulty_disk`, `faulty_device`, `durable_state`: a disk in memory that stops, tears, forgets and refuses.
- `system_faults`: failing system calls, small disks and wrong clocks for real processes.

Nobody needs any of it to use a queue. This module has what all share: checks, and a count of faults.
"""

import threading
from collections.abc import Callable

from quivermq.clock import SystemClock

# Long enough for a busy machine; whoever waits longer waits for nothing.
PATIENCE_S = 60.0
_LOOK_S = 0.01


class Violation(Exception):
    """Something that was promised did not hold. The text says what."""


def expect(holds: object, text: str) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(text)


def wait_until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Return once a condition holds that another process brings about. Raises Violation when none does."""
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + patience_s
    while not condition():
        expect(clock.monotonic() < deadline, f"waited in vain: {what}")
        pause.wait(_LOOK_S)


class FaultCount:
    """How many faults there were in this process since this was made."""

    total = 0

    def __init__(self) -> None:
        self._start = FaultCount.total

    @property
    def count(self) -> int:
        return FaultCount.total - self._start


def count_faults(times: int = 1) -> None:
    """Note that something was broken once more."""
    FaultCount.total += times
