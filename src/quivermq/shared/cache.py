"""Which files of a shared disk this machine has, and which are only in the store.

A file that is stored as it stays can leave the cache: its name and size are in the tree, and whoever opens
it reads it where it is stored. So a queue may be larger than the disk of its machine, and whoever takes it
over need not fetch it first.

Those that were opened last stay. One that is open for writing stays in any case; one that is to be written
is fetched first. Whoever has a file open goes on reading it, whatever becomes of it.
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import accumulate, count
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import DiskFull, QuiverError, StorageFailed
from quivermq.helping import Condition
from quivermq.shared.blocks import Blocks
from quivermq.shared.checkpoint import Part, is_settled
from quivermq.shared.figures import CacheFigures
from quivermq.shared.limits import SharedLimits
from quivermq.shared.remote_file import RemoteFile
from quivermq.shared.tree import FileNode, Tree

logger = logging.getLogger(__name__)

# Beside the files: what is being fetched, until it is whole.
FETCHED_NAME = "fetched"


class Cache:
    """The files of a tree in a directory of this machine. Thread-safe; `changed.lock` guards the tree."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        tree: Tree,
        blocks: Blocks,
        *,
        limits: SharedLimits,
        changed: Condition,
    ) -> None:
        self._disk = disk
        self._root = root
        self._tree = tree
        self._blocks = blocks
        self._limits = limits
        self._lock = changed.lock
        self._fetched = root.with_name(FETCHED_NAME)
        self._uses = count(1)
        self._fetches = count(1)
        self._read: Counter[str] = Counter()

    def use(self, node: FileNode) -> None:
        """Note that a file is opened now."""
        node.used = next(self._uses)

    def names_read(self) -> set[str]:
        """The objects that somebody is reading."""
        with self._lock:
            return set(self._read)

    # With the lock held.

    def open_remote(self, path: Path, node: FileNode) -> RemoteFile:
        """An evicted file, for reading. Its objects stay until it is closed."""
        return RemoteFile(path, node.parts, self._blocks, on_close=self._hold(node.parts))

    def move(self, source: Path, old: str, target: Path, new: str) -> None:
        """Do in the cache what the tree does next. Raises StorageFailed where a directory is in the way."""
        node, replaced = self._tree.files.get(old), self._tree.files.get(new)
        is_directory = old in self._tree.directories
        if self._tree.evicted_names(new) or (is_directory and replaced is not None):
            raise StorageFailed(f"cannot write {target}: it is in the way", path=target)
        if node is None or not node.is_evicted:
            self._disk.rename(source, target)
            return
        if new in self._tree.directories or not self._tree.has_parent(new):
            raise StorageFailed(f"cannot write {target}: no file can be there", path=target)
        if replaced is not None and not replaced.is_evicted:
            self._disk.remove(target)

    def remove(self, path: Path, node: FileNode) -> None:
        """Take away what the cache has of a file."""
        if not node.is_evicted:
            self._disk.remove(path)

    def make_directory(self, path: Path, name: str) -> None:
        """Make a directory. Raises StorageFailed when a file has the name."""
        if name in self._tree.files:
            raise StorageFailed(f"cannot write {path}: a file is in the way", path=path)
        self._disk.make_directory(path)

    def remove_directory(self, path: Path, name: str) -> None:
        """Take an empty directory away. Raises StorageFailed when it is not empty."""
        if self._tree.evicted_names(name):
            raise StorageFailed(f"cannot write {path}: Directory not empty", path=path)
        self._disk.remove_directory(path)

    # Without it.

    def bring_back(self, node: FileNode) -> None:
        """Fetch an evicted file; nothing to do when somebody else has, or when it lost its name.

        Raises DiskFull when there is no room for it, whatever else goes, and what `Blocks.whole` does.
        """
        with self._lock:
            parts, is_private = node.parts, node.is_private
            let_go = self._hold(parts)
        new = self._fetched / str(next(self._fetches))
        try:
            try:
                self._fetch(new, parts, is_private)
            except DiskFull:
                if not self.make_room(node.size):
                    raise
                self._fetch(new, parts, is_private)
            with self._lock:
                if node.is_evicted and node.path is not None:
                    self._disk.rename(new, self._root / node.path)
                    self._tree.bring_back(node)
                    self.use(node)
                else:
                    self._disk.remove(new)
        except BaseException:
            with suppress(QuiverError):
                self._disk.remove(new)
            raise
        finally:
            let_go()

    def _fetch(self, path: Path, parts: Iterable[Part], is_private: bool) -> None:
        self._disk.make_directory(self._fetched)
        file = self._disk.create(path, is_private=is_private)
        try:
            for part in parts:
                file.append([self._blocks.whole(part)])
        finally:
            file.close()

    def make_room(self, needed_bytes: int = 0) -> bool:
        """Evict files until the limits are kept, and so many bytes are free; whether any was evicted.

        A disk that does not let go of files is none the worse for it: nothing is raised.
        """
        try:
            return self._make_room(needed_bytes)
        except QuiverError as error:
            logger.warning("nothing more leaves %s: %s", self._root, error)
            return False

    def _make_room(self, needed_bytes: int) -> bool:
        with self._lock:
            excess = self._excess(needed_bytes)
            if excess <= 0:
                return False
            chosen = sorted(filter(self._may_go, self._tree.files.values()), key=lambda node: node.used)
            freed = list(accumulate(node.size for node in chosen))
            chosen = chosen[: bisect_left(freed, excess) + 1]
            for node in chosen:
                self._evict(node)
        if chosen:
            logger.info("%d files left %s, and are read from the store", len(chosen), self._root)
        return bool(chosen)

    def _evict(self, node: FileNode) -> None:
        assert node.path is not None, "every file of the tree has a name"
        path = self._root / node.path
        self._tree.evict(node)
        try:
            self._disk.remove(path)
        except BaseException:
            if self._disk.exists(path):
                self._tree.bring_back(node)
            raise

    def _excess(self, needed_bytes: int) -> int:
        """How many bytes have to go."""
        limits = self._limits
        free = self._disk.free_bytes(self._root)
        excess = max(limits.cache_free_bytes_min, needed_bytes) - free
        if limits.cache_bytes_max is not None:
            excess = max(excess, self.figures().bytes + needed_bytes - limits.cache_bytes_max)
        return excess

    def figures(self) -> CacheFigures:
        """How much is here, and how much is not."""
        with self._lock:
            sizes = [(node.is_evicted, node.size) for node in self._tree.files.values()]
        away = [size for is_evicted, size in sizes if is_evicted]
        return CacheFigures(
            files=len(sizes) - len(away),
            bytes=sum(size for _, size in sizes) - sum(away),
            evicted_files=len(away),
            evicted_bytes=sum(away),
            memory_bytes=self._blocks.held_bytes,
            bytes_max=self._limits.cache_bytes_max,
        )

    def _may_go(self, node: FileNode) -> bool:
        is_free = not node.is_evicted and not node.writers
        return is_free and is_settled(node.size, node.parts, self._limits)

    def _hold(self, parts: Iterable[Part]) -> Callable[[], None]:
        """Keep objects from being taken away, until what this returns is called."""
        names = Counter(part.name for part in parts)
        self._read += names

        def let_go() -> None:
            with self._lock:
                self._read -= names

        return let_go
