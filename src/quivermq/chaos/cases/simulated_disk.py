"""A queue on a simulated disk, which stops, loses power, forgets names, fails and refuses by chance."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from quivermq.chaos import expect
from quivermq.chaos.durable_state import Keep
from quivermq.chaos.faulty_device import PowerCut
from quivermq.chaos.faulty_disk import FaultyDisk
from quivermq.chaos.history import LANES, LoadHistory
from quivermq.chaos.load import TOPIC, Worker, WorkerRun, prepare
from quivermq.chaos.trial import DAY_S, NoScheduler, TickingClock, Trial
from quivermq.clock import Clock
from quivermq.engine import engine_of
from quivermq.errors import StorageFailed
from quivermq.log import LogFollower
from quivermq.opening import open_directory
from quivermq.queue.connection import Connection
from quivermq.settings import EngineSettings, Settings, StorageSettings

DATA = Path("/data")
_TICK_US = 50
_START_US = 1_800_000_000_000_000
# No reserve: a case says itself when the disk is full.
_SETTINGS = Settings(engine=EngineSettings(free_bytes_min=0))

_READ_ONLY = ("append", "create", "make_directory", "rename", "remove")
_TOO_MANY_FILES = ("create", "open", "sync_directory")
_KEEPS: tuple[Keep, ...] = ("nothing", "random", "everything")

# A simulation grows with every run, and so does every look at it: after so many, a new one is quicker.
_RUNS = 8
# How many steps of the disk a run of so many steps of the load takes, about.
_POWER_STEPS, _POWER_DISK_STEPS = 30, 300
_STEPS, _DISK_STEPS = 40, 400


class Simulation:
    """A disk, a clock and the history of the load: what stays when a process ends."""

    def __init__(self, seed: str, ordering: str = "none") -> None:
        self.rng = Random(seed)
        self.disk = FaultyDisk(self.rng.randrange(2**32))
        self.clock = TickingClock(_START_US, _TICK_US)
        self.history = LoadHistory()
        self._settings = {"durability": "fsync", "ordering": ordering}
        self._run = WorkerRun(0)

    def opened(self, disk: FaultyDisk | None = None, clock: Clock | None = None) -> Connection:
        """The queue on a disk, by default on this one, and in this time."""
        return open_directory(
            DATA, _SETTINGS, disk=disk or self.disk, clock=clock or self.clock, scheduler=NoScheduler()
        )

    def run(
        self,
        steps: int,
        between: Callable[[], None] = lambda: None,
        end: Callable[[Connection], None] = Connection.close,
    ) -> None:
        """Let a worker do so many steps. Its process ends there, or sooner at a step of the disk."""
        try:
            engine = self.opened()
            prepare(engine, self._settings)

            def look_around() -> None:
                # What a thread does otherwise, at a moment that chance decides.
                if self.rng.random() < 0.3:
                    engine_of(engine).maintain()
                between()

            Worker(engine, self._run, self.history.note).run(steps, look_around)
            end(engine)
        except PowerCut:
            pass
        except StorageFailed:
            # The topic could not even be opened, and was set aside: there is nothing to work with.
            if not self.history.disk_fails:
                raise
            self.disk.stop()
        except Exception:
            # What clean-up code raises after the process died never happened.
            if not self.disk.dead:
                raise
        self._run = self.history.next_run(self._run.number + 1)

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
            self.history.check(engine, self.disk)

    def finish(self) -> None:
        """When no lease holds any more, everything comes out once, and nothing else."""
        self.clock.advance(DAY_S)
        with self.opened() as engine:
            self.history.check_finished(engine, self.disk)


def _simulations(trial: Trial) -> Iterator[tuple[Simulation, int]]:
    """New simulations, and how many runs each is to have: together as many as the trial has cycles."""
    for start in range(0, trial.cycles, _RUNS):
        ordering = trial.rng.choice(("none", "key"))
        yield Simulation(f"{trial.seed}.{start}", ordering=ordering), min(_RUNS, trial.cycles - start)


# Power loss: what was not synced is dropped, reordered or torn, at any step, in a recovery as well.

_Cut = Callable[[Simulation], FaultyDisk]


def lose_power(trial: Trial) -> None:
    """Runs that end at any step of the disk, and recoveries that do."""

    def cut(sim: Simulation) -> FaultyDisk:
        return sim.disk.after_power_loss(sim.rng.randrange(2**32), keep=sim.rng.choice(_KEEPS))

    _lose(trial, cut)


def lose_names(trial: Trial) -> None:
    """Every byte is there, but not the names of files that were made, renamed or removed and not synced."""

    def cut(sim: Simulation) -> FaultyDisk:
        names = sim.rng.choice(_KEEPS[:2])
        return sim.disk.after_power_loss(sim.rng.randrange(2**32), keep="everything", names=names)

    _lose(trial, cut)


def _lose(trial: Trial, cut: _Cut) -> None:
    for sim, runs in _simulations(trial):
        for _ in range(runs):
            sim.disk.stop_at(sim.disk.steps + sim.rng.randint(1, _POWER_DISK_STEPS))
            sim.run(_POWER_STEPS)
            sim.disk.stop()
            sim.disk = cut(sim)
            trial.tried += 1
            _interrupt_recoveries(trial, sim, cut)
            sim.check()
        sim.finish()


def _interrupt_recoveries(trial: Trial, sim: Simulation, cut: _Cut) -> None:
    """Let the power fail again while the queue is opened, a few times."""
    while sim.rng.random() < 0.5:
        sim.disk.stop_at(sim.disk.steps + sim.rng.randint(1, 60))
        try:
            sim.opened().close()
        except PowerCut:
            trial.tried += 1
        sim.disk.stop()
        sim.disk = cut(sim)
    once = _recovered_files(sim)
    expect(_recovered_files(sim) == once, "a second recovery changed something")


def _recovered_files(sim: Simulation) -> dict[str, bytes]:
    sim.opened().close()
    # What was seen before is summed up anew whenever the queue is opened.
    return {str(path): data for path, data in sim.disk.files().items() if path.parent.name != "seen"}


# A disk that refuses for a while, or fails once.


def refuse(trial: Trial) -> None:
    """A full disk, a read-only one, and too many open files, each for a while, at random moments."""
    for sim, runs in _simulations(trial):
        sim.run(_STEPS)
        for _ in range(runs):
            sim.run(_STEPS, partial(_hinder, trial, sim), partial(_close, sim))
            sim.check()
        sim.finish()


def _close(sim: Simulation, engine: Connection) -> None:
    _relieve(sim)
    engine.close()


def _hinder(trial: Trial, sim: Simulation) -> None:
    if sim.rng.random() < 0.7:
        return
    _relieve(sim)
    trial.tried += 1
    match sim.rng.randrange(4):
        case 0:
            sim.disk.fill_after(sim.rng.randrange(2000))
        case 1:
            sim.disk.refuse(*_READ_ONLY)
        case 2:
            sim.disk.refuse(*_TOO_MANY_FILES)


def _relieve(sim: Simulation) -> None:
    sim.disk.fill_after(None)
    sim.disk.refuse()


def fail_once(trial: Trial) -> None:
    """One step of the disk fails; what is claimed to be done afterwards survives a power loss."""
    for sim, runs in _simulations(trial):
        sim.run(_STEPS)
        sim.history.disk_fails = True
        for _ in range(runs):
            sim.disk.fail_at(sim.disk.steps + sim.rng.randint(1, _DISK_STEPS))
            trial.tried += 1
            # Whatever failed, the process just ends.
            sim.run(_STEPS, end=partial(_die, sim))
            sim.disk = sim.disk.after_power_loss(sim.rng.randrange(2**32))
            sim.history.cut(sim.ends())
            sim.check()
        sim.finish()


def _die(sim: Simulation, _: Connection) -> None:
    sim.disk.stop()
