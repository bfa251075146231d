"""Which files and directories a shared disk has, how long they are, and where their parts are stored.

Rebuilding a disk and writing to one keep the same tree, so that a checkpoint of either is the same.
"""

from collections.abc import Iterator
from itertools import accumulate

from quivermq.disk import Ticket
from quivermq.shared.checkpoint import Part


class FileNode:
    """A file, whatever it is called now. Whoever has it open keeps it when it is renamed or removed."""

    __slots__ = (
        "cuts",
        "is_evicted",
        "is_private",
        "parts",
        "path",
        "size",
        "ticket",
        "used",
        "writers",
    )

    def __init__(self, path: str, *, is_private: bool = False) -> None:
        self.path: str | None = path
        """Its name; None once it has none."""
        self.size = 0
        self.is_private = is_private
        self.parts: tuple[Part, ...] = ()
        """Its first bytes, as they are stored already."""
        self.cuts = 0
        """How often bytes that it had were taken away or written over."""
        self.ticket: Ticket = 0
        """Stands for all that this owner did to it."""
        self.is_evicted = False
        """Whether it is only in the store. The tree knows where such files are: see `Tree.evict`."""
        self.used = 0
        """When it was last opened: larger than for those that were opened before."""
        self.writers = 0
        """By how many it is open for writing."""

    @property
    def stored_bytes(self) -> int:
        """How many of its bytes are in parts."""
        return sum(part.size for part in self.parts)

    def cut(self, position: int) -> None:
        """Forget the parts that have bytes behind a position: those change now."""
        ends = accumulate(part.size for part in self.parts)
        self.parts = tuple(part for part, end in zip(self.parts, ends, strict=True) if end <= position)
        self.cuts += 1


class Tree:
    """The names. Paths are those of mutations."""

    def __init__(self) -> None:
        self.files: dict[str, FileNode] = {}
        self.directories: set[str] = set()
        self._evicted: dict[str, set[str]] = {}

    def evict(self, node: FileNode) -> None:
        """Note that a file is only in the store from now on."""
        assert node.path is not None, "a file without a name is in no directory"
        node.is_evicted = True
        directory, _, name = node.path.rpartition("/")
        self._evicted.setdefault(directory, set()).add(name)

    def bring_back(self, node: FileNode) -> None:
        """Note that an evicted file is in the cache again."""
        self._forget_evicted(node)
        node.is_evicted = False

    def evicted_names(self, directory: str) -> set[str]:
        """The names in a directory of files that are only in the store."""
        return self._evicted.get(directory, set())

    def _forget_evicted(self, node: FileNode) -> None:
        if node.is_evicted and node.path is not None:
            directory, _, name = node.path.rpartition("/")
            self._evicted[directory].remove(name)
            if not self._evicted[directory]:
                del self._evicted[directory]

    def create(self, path: str, *, is_private: bool) -> FileNode:
        """A new file, in place of the one that has the name."""
        self._unlink(path)
        node = self.files[path] = FileNode(path, is_private=is_private)
        return node

    def remove(self, path: str) -> None:
        self._unlink(path)

    def move(self, source: str, target: str) -> None:
        """Give a file, or a directory with all that is in it, another name."""
        for old in list(self._at_and_below(source)):
            new = target + old[len(source) :]
            if old in self.directories:
                self.directories.remove(old)
                self.directories.add(new)
            else:
                if new != old:
                    self._unlink(new)
                node = self.files.pop(old)
                self._forget_evicted(node)
                node.path = new
                self.files[new] = node
                if node.is_evicted:
                    self.evict(node)

    def has_parent(self, path: str) -> bool:
        """Whether the directory that a path lies in is there."""
        parent = path.rpartition("/")[0]
        return not parent or parent in self.directories

    def is_used(self, path: str) -> bool:
        """Whether something is at or below a path, but for the directory of that name itself."""
        return any(each != path for each in self._at_and_below(path))

    def _at_and_below(self, path: str) -> Iterator[str]:
        if path in self.files:
            yield path
        if path in self.directories:
            yield path
            below = f"{path}/"
            yield from (each for each in self.directories if each.startswith(below))
            yield from (each for each in self.files if each.startswith(below))

    def _unlink(self, path: str) -> None:
        node = self.files.pop(path, None)
        if node is not None:
            self._forget_evicted(node)
            node.path = None
