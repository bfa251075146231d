"""A disk in memory refuses for a while, or fails once: what was promised holds all the same."""

from functools import partial

from quivermq.chaos.memory import World
from quivermq.chaos.trial import Trial
from quivermq.engine import Engine

_STEPS = 40
READ_ONLY = ("append", "create", "make_directory", "rename", "remove")
TOO_MANY_FILES = ("create", "open", "sync_directory")


def engine(trial: Trial) -> None:
    """A full disk, a read-only one, and too many open files, each for a while, at random moments."""
    world = World(trial.seed, ordering=trial.rng.choice(("none", "key")))
    world.live(_STEPS)
    for _ in range(trial.cycles):
        world.live(_STEPS, partial(_hinder, trial, world), partial(_close, world))
        world.check()
    world.finish()


def _close(world: World, engine: Engine) -> None:
    _relieve(world)
    engine.close()


def _hinder(trial: Trial, world: World) -> None:
    if world.rng.random() < 0.7:
        return
    _relieve(world)
    trial.tried += 1
    match world.rng.randrange(4):
        case 0:
            world.disk.fill_after(world.rng.randrange(2000))
        case 1:
            world.disk.refuse(*READ_ONLY)
        case 2:
            world.disk.refuse(*TOO_MANY_FILES)


def _relieve(world: World) -> None:
    world.disk.fill_after(None)
    world.disk.refuse()


def failing(trial: Trial) -> None:
    """One step of the disk fails; what is claimed to be done afterwards survives a power loss."""
    world = World(trial.seed, ordering=trial.rng.choice(("none", "key")))
    world.live(_STEPS)
    world.disk_fails = True
    for _ in range(trial.cycles):
        world.disk.fail_at(world.disk.steps + world.rng.randint(1, 400))
        trial.tried += 1
        # Whatever failed, the process just ends.
        world.live(_STEPS, end=lambda _: world.disk.stop())
        world.disk = world.disk.after_power_loss(world.rng.randrange(2**32))
        world.check()
    world.finish()
