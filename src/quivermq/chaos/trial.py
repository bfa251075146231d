"""One attempt at breaking something: where it happens, and the chance it follows."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from quivermq.chaos.broker import LIVES
from quivermq.chaos.expectation import expect
from quivermq.chaos.http import PATIENCE_S
from quivermq.chaos.nursery import Nursery, nursery
from quivermq.clock import SystemClock
from quivermq.engine import Engine, Queue, open_engine
from quivermq.model.messages import StoredMessage

_LOOK_S = 0.01
_READ_AT_ONCE = 10_000


@dataclass
class Trial:
    """A directory that is empty, a seed, and how much to try."""

    directory: Path
    seed: str
    cycles: int = 1
    lives: Nursery | None = None
    """Whoever makes processes, for everybody; None: each case has its own."""
    seconds: float = 60.0
    """How long, for what takes time."""
    tried: int = 0
    """How many times something was broken."""
    rng: Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.directory / "data"

    @contextmanager
    def nursery(self) -> Iterator[Nursery]:
        """Whoever makes processes."""
        if self.lives is not None:
            yield self.lives
        else:
            with nursery(LIVES) as lives:
                yield lives


class StandingClock:
    """Time that stands still: while something is counted, nothing falls due."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return 0.0


class NoScheduler:
    """Nothing happens by itself."""

    def schedule(self, after_s: float, call: object) -> None: ...

    def close(self) -> None: ...


def opened_to_look(path: Path, later_s: int = 0) -> Engine:
    """The queue as it is, so many seconds from now."""
    clock = StandingClock(SystemClock().now_us() + later_s * 1_000_000)
    return open_engine(path, clock=clock, scheduler=NoScheduler())


def read_all(queue: Queue, partition: int = 0, priority: str = "normal") -> Iterator[StoredMessage]:
    """Every message of a lane, from its beginning."""
    start: int | None = None
    while records := queue.read(partition, start, _READ_AT_ONCE, priority=priority):
        yield from records
        start = records[-1].offset + 1


def wait_until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Return once a condition holds that another process brings about. Raises Unkept when none does."""
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + patience_s
    while not condition():
        expect(clock.monotonic() < deadline, f"waited in vain: {what}")
        pause.wait(_LOOK_S)
