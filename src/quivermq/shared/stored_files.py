"""The files of a disk for whoever only reads them: what is in objects stays there, the rest is in memory.

`Rebuilding` makes them of a checkpoint and of chunks, as it makes those of a directory, and checks as much.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from quivermq.disk import Buffer
from quivermq.shared.checkpoint import Part, StoredFile
from quivermq.shared.chunk import Kind, Mutation
from quivermq.shared.rebuilding import Rebuilding


class Stored(NamedTuple):
    """Bytes [start, end) of a part."""

    part: Part
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


Piece = Stored | bytearray


class StoredContent:
    """The bytes of one file, piece by piece. Only a rebuilding changes them."""

    __slots__ = ("_pieces", "_starts", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[Piece] = []
        # Where each piece begins in the file.
        self._starts: list[int] = []

    def add(self, piece: Piece) -> None:
        """Put a piece behind the end."""
        self._starts.append(self.size)
        self._pieces.append(piece)
        self.size += len(piece)

    def append(self, data: Buffer) -> None:
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray):
            last += data
            self.size += len(data)
        elif data:
            self.add(bytearray(data))

    def truncate(self, size: int) -> None:
        pieces = list(self.between(0, size))
        self.size = 0
        self._pieces, self._starts = [], []
        for piece in pieces:
            self.add(piece)

    def rewrite(self, position: int, data: Buffer) -> None:
        behind = list(self.between(position + len(data), self.size))
        self.truncate(position)
        for piece in (bytearray(data), *behind):
            self.add(piece)

    def between(self, start: int, end: int) -> Iterator[Piece]:
        """What makes up bytes [start, end), as far as they are there. Pieces in memory are copies."""
        place = max(0, bisect_right(self._starts, start) - 1)
        while place < len(self._pieces) and self._starts[place] < end:
            piece, first = self._pieces[place], self._starts[place]
            low, high = max(start - first, 0), min(end - first, len(piece))
            if low < high:
                if isinstance(piece, Stored):
                    yield Stored(piece.part, piece.start + low, piece.start + high)
                else:
                    yield piece[low:high]
            place += 1


class _GrowingFile:
    """A content while a rebuilding changes it."""

    def __init__(self, content: StoredContent) -> None:
        self._content = content
        self.truncate = content.truncate
        self.rewrite = content.rewrite

    def append(self, buffers: Sequence[Buffer]) -> int:
        for data in buffers:
            self._content.append(data)
        return sum(map(len, buffers))

    def close(self) -> None:
        """Nothing is held."""


class StoredFiles:
    """Names and contents: as much of a `Disk` as a rebuilding asks for. `root` is there from the start."""

    def __init__(self, root: Path) -> None:
        self.contents: dict[Path, StoredContent] = {}
        self.names: dict[Path, set[str]] = {root: set()}
        """What is in each directory."""

    def create(self, path: Path, *, is_private: bool = False) -> _GrowingFile:  # noqa: ARG002 - Nobody else sees it.
        content = self.contents[path] = StoredContent()
        self.names[path.parent].add(path.name)
        return _GrowingFile(content)

    def open(self, path: Path, *, writable: bool = False) -> _GrowingFile:  # noqa: ARG002 - Never else.
        return _GrowingFile(self.contents[path])

    def rename(self, source: Path, target: Path) -> None:
        self.names[source.parent].discard(source.name)
        self.names[target.parent].add(target.name)
        self._move(source, target)

    def _move(self, source: Path, target: Path) -> None:
        if source in self.contents:
            self.contents[target] = self.contents.pop(source)
            return
        below = self.names[target] = self.names.pop(source)
        for name in below:
            self._move(source / name, target / name)

    def remove(self, path: Path) -> None:
        del self.contents[path]
        self.names[path.parent].discard(path.name)

    def make_directory(self, path: Path) -> None:
        if path not in self.names:
            self.names[path.parent].add(path.name)
            self.names[path] = set()

    def remove_directory(self, path: Path) -> None:
        del self.names[path]
        self.names[path.parent].discard(path.name)


class StoredRebuilding(Rebuilding):
    """A disk on its way from the store into `files`, without the objects that are parts of files."""

    def __init__(self, root: Path) -> None:
        self.files = StoredFiles(root)
        super().__init__(self.files, root)

    def _load_file(self, name: str, file: StoredFile, fetched: Iterable[tuple[Part, bytes]]) -> None:  # noqa: ARG002 - Nothing is.
        self._create(name, Mutation(Kind.CREATE, file.path, int(file.is_private)))
        node, content = self.tree.files[file.path], self.files.contents[self._root / file.path]
        for part in file.parts:
            content.add(Stored(part, 0, part.size))
        node.parts = file.parts
        node.size = content.size
        if file.tail:
            self._append(name, Mutation(Kind.APPEND, file.path, node.size, "", file.tail))
