"""Power loss: what was not synced is dropped, reordered or torn, at any step, in a recovery as well."""

from collections.abc import Callable

from quivermq.chaos.expectation import expect
from quivermq.chaos.faulty_disk import FaultyDisk, Keep, PowerCut
from quivermq.chaos.memory import World, worlds
from quivermq.chaos.trial import Trial

_STEPS = 30
# About as many steps of the disk as such a life takes.
_DISK_STEPS = 300
_KEEPS: tuple[Keep, ...] = ("nothing", "random", "everything")
_NAMES: tuple[Keep | None, ...] = ("nothing", "random")

Cut = Callable[[World], FaultyDisk]


def engine(trial: Trial) -> None:
    """Lives that end at any step of the disk, and recoveries that do."""
    _lose(trial, lambda world: world.disk.after_power_loss(world.rng.randrange(2**32), keep=_any(world)))


def names(trial: Trial) -> None:
    """Every byte is there, but not the names of files that were made, renamed or removed and not synced."""

    def cut(world: World) -> FaultyDisk:
        names = world.rng.choice(_NAMES)
        return world.disk.after_power_loss(world.rng.randrange(2**32), keep="everything", names=names)

    _lose(trial, cut)


def _any(world: World) -> Keep:
    return world.rng.choice(_KEEPS)


def _lose(trial: Trial, cut: Cut) -> None:
    for world, lives in worlds(trial):
        for _ in range(lives):
            world.disk.stop_at(world.disk.steps + world.rng.randint(1, _DISK_STEPS))
            world.live(_STEPS)
            world.disk.stop()
            world.disk = cut(world)
            trial.tried += 1
            _interrupt_recoveries(trial, world, cut)
            world.check()
        world.finish()


def _interrupt_recoveries(trial: Trial, world: World, cut: Cut) -> None:
    """Let the power fail again while the queue is opened, a few times."""
    while world.rng.random() < 0.5:
        world.disk.stop_at(world.disk.steps + world.rng.randint(1, 60))
        try:
            world.opened().close()
        except PowerCut:
            trial.tried += 1
        world.disk.stop()
        world.disk = cut(world)
    once = _files(world)
    expect(_files(world) == once, "a second recovery changed something")


def _files(world: World) -> dict[str, bytes]:
    world.opened().close()
    # What was seen before is summed up anew whenever the queue is opened.
    return {str(path): data for path, data in world.disk.files().items() if path.parent.name != "seen"}
