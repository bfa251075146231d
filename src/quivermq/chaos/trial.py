"""One attempt at breaking something: where it happens, and the chance it follows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from quivermq.chaos.processes import BrokerProcess, ProcessPool, broker, process_pool
from quivermq.clock import SystemClock
from quivermq.model.lanes import Priority
from quivermq.model.messages import StoredMessage
from quivermq.opening import open_directory
from quivermq.queue.connection import Connection
from quivermq.queue.queue import Queue

DAY_S = 24 * 3600
_READ_AT_ONCE = 10_000


@dataclass
class Trial:
    """A directory that is empty, a seed, and how much to try."""

    directory: Path
    seed: str
    cycles: int = 1
    pool: ProcessPool | None = None
    """Starts the processes of all trials; None: each case has a pool of its own."""
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
    def process_pool(self) -> Iterator[ProcessPool]:
        if self.pool is not None:
            yield self.pool
        else:
            with process_pool() as pool:
                yield pool

    @contextmanager
    def broker(self, path: Path | None = None, /, **options: Any) -> Iterator[BrokerProcess]:
        """A broker of the data directory, or of another one."""
        with self.process_pool() as pool, broker(pool, path or self.data, **options) as process:
            yield process


class TickingClock:
    """Time that goes on by a tick whenever somebody looks, so that the same run sees the same times.

    Without a tick it stands still: while something is counted, nothing falls due.
    """

    def __init__(self, now_us: int, tick_us: int = 0) -> None:
        self._now_us = now_us
        self._tick_us = tick_us

    def now_us(self) -> int:
        self._now_us += self._tick_us
        return self._now_us

    def monotonic(self) -> float:
        return self.now_us() / 1_000_000

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * 1_000_000)


class NoScheduler:
    """Nothing happens by itself."""

    def schedule(self, after_s: float, call: object) -> None: ...

    def close(self) -> None: ...


def opened_to_look(path: Path, later_s: int = 0) -> Connection:
    """The queue as it is, so many seconds from now."""
    clock = TickingClock(SystemClock().now_us() + later_s * 1_000_000)
    return open_directory(path, clock=clock, scheduler=NoScheduler())


def read_all(queue: Queue, partition: int = 0, priority: Priority = "normal") -> Iterator[StoredMessage]:
    """Every message of a lane, from its beginning."""
    start: int | None = None
    while records := queue.read(partition, start, _READ_AT_ONCE, priority=priority):
        yield from records
        start = records[-1].offset + 1
