"""Which files and directories a shared disk has, how long they are, and where their parts are stored.

Rebuilding a disk and writing to one keep the same tree, so that a checkpoint of either is the same.
"""

from collections.abc import Iterator
from itertools import accumulate

from quivermq.disk import Ticket
from quivermq.shared.checkpoint import Part


class FileNode:
    """A file, whatever it is called now. Whoever has it open keeps it when it is renamed or removed."""

    __slots__ = ("cuts", "is_private", "parts", "path", "size", "ticket")

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
                node.path = new
                self.files[new] = node

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
            node.path = None
