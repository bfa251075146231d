"""A disk in memory refuses for a while, or fails once: what was promised holds all the same."""

from functools import partial

from quivermq.chaos.memory import World, worlds
from quivermq.chaos.trial import Trial
from quivermq.engine import Engine

_STEPS = 40
_DISK_STEPS = 400
READ_ONLY = ("append", "create", "make_directory", "rename", "remove")
TOO_MANY_FILES = ("create", "open", "sync_directory")


def engine(trial: Trial) -> None:
    """A full disk, a read-only one, and too many open files, each for a while, at random moments."""
    for world, lives in worlds(trial):
        world.live(_STEPS)
        for _ in range(lives):
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
    for world, lives in worlds(trial):
        world.live(_STEPS)
        world.promises.disk_fails = True
        for _ in range(lives):
            world.disk.fail_at(world.disk.steps + world.rng.randint(1, _DISK_STEPS))
            trial.tried += 1
            # Whatever failed, the process just ends.
            world.live(_STEPS, end=partial(_die, world))
            world.disk = world.disk.after_power_loss(world.rng.randrange(2**32))
            world.promises.cut(world.ends())
            world.check()
        world.finish()


def _die(world: World, _: Engine) -> None:
    world.disk.stop()
