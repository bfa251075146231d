"""A disk in memory that stops, tears, forgets, fails and fills up, the same way for the same seed.

It is a `quivermq.disk.Disk`: the tree of files, the faults that sit in files, the disk as the next process
finds it, and `every_crash`, which runs a scenario once for every step it could die at. `faulty_device` is
the process that uses it, `durable_state` what is on the platter.

It is harsher than any one file system, but not harsher than what `quivermq.disk` promises.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Literal, TypeVar

from quivermq.chaos import count_faults
from quivermq.chaos.durable_state import Directory, Inode, Keep, NameHistory, Node, Resize, Write
from quivermq.chaos.faulty_device import Device, FaultyFile, FaultyLock, PowerCut
from quivermq.errors import DirectoryLocked, DiskFull, FsyncFailed, StorageFailed


class FaultyDisk(Device):
    """A `quivermq.disk.Disk` in memory. Only the root, `Path("/")`, is there from the start.

    `story` says how the disk came to be as it is: put it into assertion messages.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.story = f"a new disk, seed {seed}"

    def __repr__(self) -> str:
        return f"<FaultyDisk: {self.story}>"

    def create(self, path: Path, *, is_private: bool = False) -> FaultyFile:
        if self.exists(path):
            # Two steps: a process may die in between, and the disk be too full for the second.
            self.remove(path)
        with self.step("create", path) as step:
            directory = self._parent(path)
            self._check_room(path)
            inode = Inode(self.new_number())
            if step.happens:
                self.names_history.change((directory, path.name, inode))
            return FaultyFile(self, inode, path, writable=True)

    def open(self, path: Path, *, writable: bool = False) -> FaultyFile:
        with self.alive():
            self.check_taken("open", path)
            return FaultyFile(self, self._inode(path), path, writable=writable)

    def names(self, directory: Path) -> list[str]:
        with self.alive():
            node = self._find(directory)
            return sorted(node.live) if isinstance(node, Directory) else []

    def is_directory(self, path: Path) -> bool:
        with self.alive():
            return isinstance(self._find(path), Directory)

    def exists(self, path: Path) -> bool:
        return self.identity(path) is not None

    def identity(self, path: Path) -> int | None:
        """A number that no other file or directory ever has; None when there is none."""
        with self.alive():
            node = self._find(path)
            return None if node is None else node.number

    def make_directory(self, path: Path) -> None:
        if self.is_directory(path):
            # The root, even an empty one, was there before everything.
            if not self.names(path) and path != path.parent:
                self.sync_directory(path.parent)
            return
        self.make_directory(path.parent)
        with self.step("make_directory", path) as step:
            parent = self._parent(path)
            if isinstance(parent.live.get(path.name), Inode):
                raise StorageFailed(f"cannot write {path}: File exists", path=path)
            self._check_room(path)
            if step.happens and path.name not in parent.live:
                self.names_history.change((parent, path.name, Directory(self.new_number())))
        self.sync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        with self.step("rename", target) as step:
            old_parent, new_parent = self._parent(source), self._parent(target)
            node, replaced = old_parent.live.get(source.name), new_parent.live.get(target.name)
            if node is None:
                raise StorageFailed(f"cannot write {target}: {source} is not there", path=target)
            if isinstance(replaced, Directory) or (replaced and isinstance(node, Directory)):
                raise StorageFailed(f"cannot write {target}: it is in the way", path=target)
            if step.happens and node is not replaced:
                self.names_history.change((old_parent, source.name, None), (new_parent, target.name, node))

    def remove(self, path: Path) -> None:
        with self.step("remove", path) as step:
            directory = self._parent(path)
            if not isinstance(directory.live.get(path.name), Inode):
                raise StorageFailed(f"cannot write {path}: no such file", path=path)
            if step.happens:
                self.names_history.change((directory, path.name, None))

    def remove_directory(self, path: Path) -> None:
        with self.step("remove_directory", path) as step:
            directory = self._parent(path)
            node = directory.live.get(path.name)
            if not isinstance(node, Directory) or node.live:
                raise StorageFailed(f"cannot write {path}: not an empty directory", path=path)
            if step.happens:
                # The names inside are gone for good with their directory.
                self.names_history.sync(node)
                self.names_history.change((directory, path.name, None))

    def free_bytes(self, path: Path) -> int:
        with self.alive():
            return self.room_bytes()

    def sync_directory(self, directory: Path) -> None:
        with self.step("sync_directory", directory) as step:
            node = self._find(directory)
            if not isinstance(node, Directory):
                raise FsyncFailed(f"cannot sync {directory}: it is not there", path=directory)
            keep = self.sync_fault(step)
            if keep is not None:
                self.names_history.fail_sync(node, keep, step.rng)
                raise FsyncFailed(f"cannot sync {directory}: Input/output error", path=directory)
            if step.happens:
                self.names_history.sync(node)
            elif step.share > 0:
                self.names_history.sync_in_part(node, step.rng)

    def lock(self, path: Path, *, with_directory: bool = False) -> FaultyLock:
        with self.step("lock", path) as step:
            directory = self._parent(path)
            inode = directory.live.get(path.name)
            if inode is None:
                self._check_room(path)
                inode = Inode(self.new_number())
            if isinstance(inode, Directory):
                raise StorageFailed(f"cannot write {path}: Is a directory", path=path)
            if inode.number in self.locked:
                raise DirectoryLocked(path.parent, pid=int(inode.live))
            if step.happens:
                if path.name not in directory.live:
                    self.names_history.change((directory, path.name, inode))
                inode.change(Resize(0))
                inode.change(Write(0, b"%d\n" % os.getpid()))
                self.locked.add(inode.number)
            return FaultyLock(self, inode)

    def files(self) -> dict[Path, bytes]:
        """Every file and what processes see in it, to compare one moment with another."""
        with self.guard:
            return dict(_files(self.root, Path("/")))

    def fail_read(self, path: Path, position: int) -> None:
        """Let every `read` of that byte fail from now on, as a bad sector does."""
        self._inode(path).unreadable.add(position)

    def flip(self, path: Path, position: int, mask: int = 0x01) -> None:
        """Change bits behind everybody's back, for good."""
        with self.guard:
            self._inode(path).flip(position, mask)

    def chop(self, path: Path, size: int) -> None:
        """Lose the end of a file behind everybody's back, for good."""
        with self.guard:
            self._inode(path).chop(size)

    def after_kill(self) -> "FaultyDisk":
        """The disk as another process finds it: what was written is seen, but no more durable."""
        with self.guard:
            twins: dict[Node, Node] = {}
            root = self.root.copy(twins)
            return self._restarted(root, self.names_history.copy(twins), "after a kill")

    def after_power_loss(
        self, seed: int = 0, *, keep: Keep = "random", names: Keep | None = None
    ) -> "FaultyDisk":
        """The disk as the next boot finds it: what was synced, and of the rest what `keep` says.

        `names` says it for names alone, if they fare otherwise than bytes.
        """
        with self.guard:
            rng = Random(f"{seed} {self.steps}")
            found = self.names_history.after_power_loss(names or keep, rng)
            root = _after_power_loss(self.root, found, keep, rng)
            told = f"after a power loss that kept {keep} (names: {names or keep}), seed {seed}"
            return self._restarted(root, NameHistory(), told)

    def write_to(self, real_directory: Path) -> None:
        """Write the tree as processes see it to the real file system, to look at."""
        with self.guard:
            _write(self.root, real_directory)

    @classmethod
    def from_directory(cls, real_directory: Path, *, seed: int = 0) -> "FaultyDisk":
        """A disk that holds a copy of a real directory, all of it durable."""
        disk = cls(seed)
        disk.root = disk._load(real_directory)
        disk.story = f"a copy of {real_directory}, seed {seed}"
        return disk

    def _restarted(self, root: Directory, history: NameHistory, told: str) -> "FaultyDisk":
        disk = FaultyDisk(self.seed)
        disk.root = root
        disk.names_history = history
        disk.mapped_then_cut = list(self.mapped_then_cut)
        disk._last_number = self._last_number
        disk._capacity_bytes = self._capacity_bytes
        disk.story = f"{told}; {self.history[-1] if self.history else 'no step'} was the last"
        return disk

    def _load(self, real_directory: Path) -> Directory:
        directory = Directory(self.new_number())
        for real in sorted(real_directory.iterdir()):
            node: Node = self._load(real) if real.is_dir() else Inode(self.new_number(), real.read_bytes())
            directory.live[real.name] = directory.durable[real.name] = node
        return directory

    def _find(self, path: Path) -> Node | None:
        node: Node | None = self.root
        parts = path.parts
        assert ".." not in parts, f"{path}: the faulty disk does not go up"
        for name in parts[1:] if path.is_absolute() else parts:
            if not isinstance(node, Directory):
                return None
            node = node.live.get(name)
        return node

    def _parent(self, path: Path) -> Directory:
        node = self._find(path.parent)
        if not isinstance(node, Directory):
            raise StorageFailed(f"cannot write {path}: {path.parent} is not there", path=path)
        return node

    def _inode(self, path: Path) -> Inode:
        node = self._find(path)
        if isinstance(node, Inode):
            return node
        if node is None and not isinstance(self._find(path.parent), Inode):
            raise FileNotFoundError(path)
        raise StorageFailed(f"cannot open {path}: it is no file", path=path)

    def _check_room(self, path: Path) -> None:
        # A full disk may or may not have room for one more name; the code has to expect that not.
        if self.room_bytes() == 0:
            raise DiskFull(path, needed_bytes=0)


def _after_power_loss(
    directory: Directory, found: dict[Directory, dict[str, Node]], keep: Keep, rng: Random
) -> Directory:
    after = Directory(directory.number)
    for name, node in sorted(found.get(directory, directory.durable).items()):
        after.live[name] = after.durable[name] = (
            node.after_power_loss(keep, rng)
            if isinstance(node, Inode)
            else _after_power_loss(node, found, keep, rng)
        )
    return after


def _files(directory: Directory, path: Path) -> Iterator[tuple[Path, bytes]]:
    for name, node in sorted(directory.live.items()):
        if isinstance(node, Inode):
            yield path / name, bytes(node.live)
        else:
            yield from _files(node, path / name)


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
            count_faults()
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
