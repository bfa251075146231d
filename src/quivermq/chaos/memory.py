"""Lives of a worker on a disk in memory, which stops, forgets, fails and refuses whenever it is told to."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from quivermq.chaos.faulty_disk import FaultyDisk, PowerCut
from quivermq.chaos.promises import LANES, Promises
from quivermq.chaos.trial import NoScheduler, Trial
from quivermq.chaos.worker import TOPIC, Errand, Worker, prepare
from quivermq.clock import Clock
from quivermq.engine import Engine, open_engine
from quivermq.errors import StorageFailed
from quivermq.log import LogFollower
from quivermq.settings import EngineSettings, Settings, StorageSettings

DATA = Path("/data")
_TICK_US = 50
_START_US = 1_800_000_000_000_000
# No reserve: a case says itself when the disk is full.
_SETTINGS = Settings(engine=EngineSettings(free_bytes_min=0))


class TickingClock:
    """Time that goes on a little whenever somebody looks, so that the same run sees the same times."""

    def __init__(self, start_us: int = _START_US) -> None:
        self._now_us = start_us

    def now_us(self) -> int:
        self._now_us += _TICK_US
        return self._now_us

    def monotonic(self) -> float:
        return self.now_us() / 1_000_000

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * 1_000_000)


# A world grows with every life, and so does every look at it: after so many, a new one is quicker.
_LIVES = 8


def worlds(trial: Trial) -> Iterator[tuple["World", int]]:
    """New worlds, and how many lives each is to have: together as many as the trial has cycles."""
    for start in range(0, trial.cycles, _LIVES):
        ordering = trial.rng.choice(("none", "key"))
        yield World(f"{trial.seed}.{start}", ordering=ordering), min(_LIVES, trial.cycles - start)


class World:
    """A disk, a clock and what was promised: what stays when a life ends."""

    def __init__(self, seed: str, durability: str = "fsync", ordering: str = "none") -> None:
        self.rng = Random(seed)
        self.disk = FaultyDisk(self.rng.randrange(2**32))
        self.clock = TickingClock()
        self.promises = Promises()
        self._settings = {"durability": durability, "ordering": ordering}
        self._errand = Errand(0)

    def opened(self, disk: FaultyDisk | None = None, clock: Clock | None = None) -> Engine:
        """The queue on a disk, by default on this one, and in this time."""
        return open_engine(
            DATA, _SETTINGS, disk=disk or self.disk, clock=clock or self.clock, scheduler=NoScheduler()
        )

    def live(
        self,
        steps: int,
        between: Callable[[], None] = lambda: None,
        end: Callable[[Engine], None] = Engine.close,
    ) -> None:
        """Let a worker do so many steps. Its life ends there, or sooner at a step of the disk."""
        errand, disk = self._errand, self.disk
        try:
            engine = self.opened()
            prepare(engine, self._settings)

            def look_around() -> None:
                # What a thread does otherwise, at a moment that chance decides.
                if self.rng.random() < 0.3:
                    engine.maintain()
                between()

            Worker(engine, errand, self.promises.note).run(steps, look_around)
            end(engine)
        except PowerCut:
            pass
        except StorageFailed:
            # The topic could not even be opened, and was set aside: there is nothing to work with.
            if not self.promises.disk_fails:
                raise
            disk.stop()
        except Exception:
            # What clean-up code raises after the process died never happened.
            if not disk.dead:
                raise
        life = errand.life + 1
        self._errand = self.promises.stopped()
        self._errand.life = life

    def ends(self) -> dict[tuple[int, str], int]:
        """Where the lanes on the disk end, by partition and priority, before anybody opens them."""
        found: dict[tuple[int, str], int] = {}
        for partition, priority in LANES:
            directory = DATA / "topics" / TOPIC / f"p{partition}" / priority
            if self.disk.is_directory(directory):
                follower = LogFollower(directory, StorageSettings(), disk=self.disk)
                found[partition, priority] = follower.end
        return found

    def check(self) -> None:
        """What is on the disk keeps every promise. Changes what is on it no more than opening does."""
        with self.opened() as engine:
            self.promises.check(engine, self.disk)

    def finish(self) -> None:
        """When no lease holds any more, everything comes out once, and nothing else."""
        self.clock.advance(24 * 3600)
        with self.opened() as engine:
            engine.maintain()
            self.promises.check(engine, self.disk)
            self.promises.drain(engine)
            self.promises.check(engine, self.disk)
            self.promises.check_finished()
