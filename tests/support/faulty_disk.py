"""The disk in memory of `quivermq.chaos.faulty_disk`, with what only tests ask of it.

It says when a mapping is cut, lets a test interfere before a step, and is copied from and to real
directories. `every_crash` runs a scenario once for every step it could die at.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, Self, TypeVar

from quivermq.chaos import faulty_disk
from quivermq.chaos.durable_state import SECTOR_BYTES, Directory, Inode, Keep, NameHistory, Node
from quivermq.chaos.faulty_device import DiskStep, FaultyFile, FaultyLock, PowerCut
from support.fault_count import count_faults
from support.lost_machine import every_loss

__all__ = [
    "SECTOR_BYTES",
    "CutMap",
    "DiskStep",
    "FaultyDisk",
    "FaultyFile",
    "FaultyLock",
    "Keep",
    "PowerCut",
    "every_crash",
]


class CutMap(NamedTuple):
    """A mapping whose last bytes went away while somebody could still read them."""

    path: Path
    mapped_bytes: int
    size: int


class _Mapped(bytearray):
    """Mapped bytes. Unlike `bytes` it can be watched: it lives as long as any view of it."""


class WatchedFile(FaultyFile):
    """A file that knows who has it mapped when it gets shorter."""

    def map(self, length: int) -> memoryview:
        mapped = _Mapped(super().map(length))
        self._disk.maps.append((weakref.ref(mapped), self._inode, self.path))
        return memoryview(mapped).toreadonly()

    def truncate(self, size: int) -> None:
        try:
            super().truncate(size)
        finally:
            self._disk.note_cut(self._inode)

    @property
    def _disk(self) -> "FaultyDisk":
        assert isinstance(self._device, FaultyDisk)
        return self._device


class FaultyDisk(faulty_disk.FaultyDisk):
    """A disk in memory that a test watches."""

    file_type = WatchedFile

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.mapped_then_cut: list[CutMap] = []
        # Called before a step takes hold, outside the guard, so that a test can keep one thread
        # in the middle of a sync while others go on.
        self.before_step: Callable[[str, Path], None] | None = None
        self.maps: list[tuple[weakref.ref[_Mapped], Inode, Path]] = []

    @contextmanager
    def step(self, operation: str, path: Path) -> Iterator[DiskStep]:
        if self.before_step is not None and not self.dead:
            self.before_step(operation, path)
        with super().step(operation, path) as step:
            yield step

    def note_cut(self, inode: Inode) -> None:
        """Look for mappings that reach behind the file's new end."""
        with self.guard:
            self.maps = [entry for entry in self.maps if entry[0]() is not None]
            for reference, mapped_inode, path in self.maps:
                mapped = reference()
                if mapped is not None and mapped_inode is inode and len(mapped) > len(inode.live):
                    self.mapped_then_cut.append(CutMap(path, len(mapped), len(inode.live)))

    def write_to(self, real_directory: Path) -> None:
        """Write the tree as processes see it to the real file system, to look at."""
        with self.guard:
            _write(self.root, real_directory)

    @classmethod
    def from_directory(cls, real_directory: Path, *, seed: int = 0) -> Self:
        """A disk that holds a copy of a real directory, all of it durable."""
        disk = cls(seed)
        disk.root = disk._load(real_directory)
        disk.description = f"a copy of {real_directory}, seed {seed}"
        return disk

    def _restarted(self, root: Directory, history: NameHistory, how: str) -> Self:
        disk = super()._restarted(root, history, how)
        disk.mapped_then_cut = list(self.mapped_then_cut)
        return disk

    def _load(self, real_directory: Path) -> Directory:
        directory = Directory(self.new_number())
        for real in sorted(real_directory.iterdir()):
            node: Node = self._load(real) if real.is_dir() else Inode(self.new_number(), real.read_bytes())
            directory.live[real.name] = directory.durable[real.name] = node
        return directory


def _write(directory: Directory, real_directory: Path) -> None:
    real_directory.mkdir(parents=True, exist_ok=True)
    for name, node in directory.live.items():
        if isinstance(node, Inode):
            (real_directory / name).write_bytes(node.live)
        else:
            _write(node, real_directory / name)


T = TypeVar("T")
Scenario = Callable[[FaultyDisk, list[T]], None]

_KEEPS: tuple[Keep, ...] = ("nothing", "random", "everything")


def every_crash(
    scenario: Scenario[T],
    *,
    model: Literal["power", "kill", "store"],
    seeds: Iterable[int] = range(3),
    keep: Keep | None = None,
    start: FaultyDisk | None = None,
) -> Iterator[tuple[FaultyDisk, list[T]]]:
    """Yield, for every step and seed, the disk after the restart and what was acknowledged.

    The scenario gets a disk, a copy of `start` if there is one, and a list to which it adds what
    the code under test has promised to keep. The last crash comes after the scenario's end.

    Three seeds see each step before, in part and after it, and each `keep`; nine see every pair.
    `disk.description` says which crash it was; an error of the scenario itself carries a note of it.

    With the model "store", the scenario gets a shared disk, and some steps of its store are looked at: what
    only survives a kill is not there then.
    """
    if model == "store":
        yield from every_loss(scenario, start=start, make=FaultyDisk)
        return
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
            count_faults()
            after.description += f"; crash {step} of {rehearsal.steps + 1}, seed {seed}"
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
