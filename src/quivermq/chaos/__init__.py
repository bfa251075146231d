"""Faults on purpose: what `quiver chaos` and the tests of the project do to a queue, and what must hold.

- `cases/`: the faults, what must hold in spite of each, and how each is tried; `run`: trying them for long.
- `trial`: where one attempt happens, and the seed it follows.
- `load`, `history`: a load that uses every feature, and every answer it got, held against the files.
- `processes`, `http_clients`: workers and brokers that start quickly and are killed, and their clients.
- `faulty_disk`, `faulty_device`, `durable_state`: a disk in memory that stops, tears, forgets and refuses.
- `cluster_processes`, `cluster_servers`: a cluster with etcd and a store; `fault_proxy`: links between them
  that are cut or make trouble; `cluster_load`: its clients, and what they were promised.
- `system_faults`: failing system calls, small disks and wrong clocks for real processes.

Nobody needs any of it to use a queue. This module has what all share: checks, and threads that fail loudly.
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


class CheckedThread:
    """A thread at work until it is done, or until one of the expected errors, which are no failure."""

    def __init__(self, work: Callable[[], object], *expected: type[BaseException]) -> None:
        self._work = work
        self._expected = expected
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def end(self, what: str) -> None:
        """Wait until it is over. Raises what it failed with, and Violation when it goes on: `what` does."""
        self._thread.join(PATIENCE_S)
        expect(self.is_over, what)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work()
        except self._expected:
            return
        except BaseException as error:
            self._error = error
