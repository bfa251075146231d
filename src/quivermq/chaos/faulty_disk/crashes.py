"""One scenario, run once for every step at which the process that runs it could die."""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Literal, TypeVar

from quivermq.chaos.faulty_disk.device import PowerCut
from quivermq.chaos.faulty_disk.disk import FaultyDisk
from quivermq.chaos.faulty_disk.inode import Keep
from quivermq.chaos.tally import tried

T = TypeVar("T")
Scenario = Callable[[FaultyDisk, list[T]], None]

_KEEPS: tuple[Keep, ...] = ("nothing", "random", "everything")


def every_crash(
    scenario: Scenario[T],
    *,
    model: Literal["power", "kill"],
    seeds: Iterable[int] = range(3),
    keep: Keep | None = None,
    start: FaultyDisk | None = None,
) -> Iterator[tuple[FaultyDisk, list[T]]]:
    """Yield, for every step and seed, the disk after the restart and what was acknowledged.

    The scenario gets a disk, a copy of `start` if there is one, and a list to which it adds what
    the code under test has promised to keep. The last crash comes after the scenario's end.

    Three seeds see each step before, in part and after it, and each `keep`; nine see every pair.
    `disk.story` says which crash it was; an error of the scenario itself carries a note of it.
    """
    seeds = list(seeds)
    rehearsal = _fresh(start, 0)
    scenario(rehearsal, [])
    for step in range(1, rehearsal.steps + 2):
        for seed in seeds:
            disk = _fresh(start, seed)
            disk.stop_at(step, torn=_torn(step, seed))
            acknowledged = _run(scenario, disk)
            if model == "kill":
                after = disk.after_kill()
            else:
                kept = keep or _KEEPS[(seed + seed // 3 + step // 3) % 3]
                after = disk.after_power_loss(seed, keep=kept)
            tried()
            after.story += f"; crash {step} of {rehearsal.steps + 1}, seed {seed}"
            yield after, acknowledged


def _fresh(start: FaultyDisk | None, seed: int) -> FaultyDisk:
    disk = FaultyDisk() if start is None else start.after_kill()
    disk.seed = seed
    return disk


def _torn(step: int, seed: int) -> float:
    return (0.0, Random(f"{seed} {step} torn").uniform(0.01, 0.99), 1.0)[(seed + step) % 3]


def _run(scenario: Scenario[T], disk: FaultyDisk) -> list[T]:
    acknowledged: list[T] = []
    try:
        scenario(disk, acknowledged)
    except PowerCut:
        pass
    except Exception as error:
        # What clean-up code or other threads raise after the process died never happened.
        if not disk.dead:
            error.add_note(f"raised by the scenario after {disk.steps} steps, seed {disk.seed}")
            raise
    # The scenario may have ended before the step, or one of its threads have died alone: whoever
    # is left dies now, and what it adds to the list from here on does not count.
    disk.stop()
    return list(acknowledged)
