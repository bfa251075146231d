"""A disk in memory that stops, tears, forgets, fails and fills up, the same way for the same seed.

It is a `quivermq.disk.Disk`: the tree of files, the faults that sit in files, and the disk as the next
process finds it. `faulty_device` is the process that uses it, `durable_state` what is on the platter.

It is harsher than any one file system, but not harsher than what `quivermq.disk` promises.
"""

import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Self

from quivermq.chaos.durable_state import Directory, Inode, Keep, NameHistory, Node, Resize, Write
from quivermq.chaos.faulty_device import Device, FaultyFile, FaultyLock
from quivermq.errors import DirectoryLocked, DiskFull, FsyncFailed, StorageFailed


class FaultyDisk(Device):
    """A `quivermq.disk.Disk` in memory. Only the root, `Path("/")`, is there from the start.

    `description` says how the disk came to be as it is: put it into assertion messages.
    """

    file_type = FaultyFile
    commits = None

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.description = f"a new disk, seed {seed}"

    def __repr__(self) -> str:
        return f"<FaultyDisk: {self.description}>"

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
            return self.file_type(self, inode, path, writable=True)

    def open(self, path: Path, *, writable: bool = False) -> FaultyFile:
        with self.alive():
            self.check_taken("open", path)
            return self.file_type(self, self._inode(path), path, writable=writable)

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

    def after_kill(self) -> Self:
        """The disk as another process finds it: what was written is seen, but no more durable."""
        with self.guard:
            root, names_history = deepcopy((self.root, self.names_history))
            return self._restarted(root, names_history, "after a kill")

    def after_power_loss(self, seed: int = 0, *, keep: Keep = "random", names: Keep | None = None) -> Self:
        """The disk as the next boot finds it: what was synced, and of the rest what `keep` says.

        `names` says it for names alone, if they fare otherwise than bytes.
        """
        with self.guard:
            rng = Random(f"{seed} {self.steps}")
            found = self.names_history.after_power_loss(names or keep, rng)
            root = _after_power_loss(self.root, found, keep, rng)
            how = f"after a power loss that kept {keep} (names: {names or keep}), seed {seed}"
            return self._restarted(root, NameHistory(), how)

    def _restarted(self, root: Directory, history: NameHistory, how: str) -> Self:
        disk = type(self)(self.seed)
        disk.root = root
        disk.names_history = history
        disk._last_number = self._last_number
        disk._capacity_bytes = self._capacity_bytes
        disk.description = f"{how}; {self.history[-1] if self.history else 'no step'} was the last"
        return disk

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
