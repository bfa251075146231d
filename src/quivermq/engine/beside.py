"""Looking at a queue that somebody else has open, or that nobody can write to: a directory, or a bucket.

The files are opened for reading and no lock is taken. What opening a queue writes, to make a torn tail
whole for instance, is kept in memory and forgotten: the engine that comes out of it is a picture of one
moment. It is for looking; whatever is put or taken there, nobody will ever see.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quivermq.disk import Buffer, Disk, File, SystemDisk
from quivermq.engine.engine import Engine
from quivermq.engine.entry import open_engine
from quivermq.errors import StorageFailed
from quivermq.settings import Settings, check_bucket, is_bucket
from quivermq.shared.beside import stored_disk

# Whoever writes there may take files away while they are looked at: then a later look sees others.
_TRIES = 5


def open_beside(path: str | os.PathLike[str], settings: Settings | None = None) -> Engine:
    """A picture of the queue in a directory, or in a bucket by its URL.

    Changes nothing there, whatever is done with it, and claims nothing.
    """
    if isinstance(path, str) and is_bucket(path):
        settings = settings or Settings()
        stored = stored_disk(path, settings.bucket)
        engine = open_engine(stored.root, settings, disk=BesideDisk(stored))
        engine.name = check_bucket(path)
        return engine
    for _ in range(_TRIES - 1):
        try:
            return open_engine(path, settings, disk=BesideDisk())
        except (FileNotFoundError, StorageFailed):
            continue
    return open_engine(path, settings, disk=BesideDisk())


@dataclass(slots=True)
class _Content:
    """The first bytes of a file of the disk, and what was written behind them."""

    base: Path | None = None
    base_bytes: int = 0
    tail: bytearray = field(default_factory=bytearray)

    def truncate(self, size: int) -> None:
        if size <= self.base_bytes:
            self.base_bytes = size
            self.tail.clear()
        else:
            del self.tail[size - self.base_bytes :]


class _BesideFile:
    """A file that somebody wrote to, or opened to write: as long as it was then."""

    def __init__(self, path: Path, content: _Content, disk: Disk) -> None:
        self.path = path
        self._content = content
        self._base: File | None = None if content.base is None else disk.open(content.base)

    def size(self) -> int:
        return self._content.base_bytes + len(self._content.tail)

    def append(self, buffers: Sequence[Buffer]) -> int:
        for buffer in buffers:
            self._content.tail += buffer
        return sum(map(len, buffers))

    def rewrite(self, position: int, data: Buffer) -> None:
        """The bytes are there already."""

    def read(self, position: int, length: int) -> bytes:
        content = self._content
        length = max(0, min(length, self.size() - position))
        from_base = max(0, min(length, content.base_bytes - position))
        data = self._base.read(position, from_base) if self._base is not None and from_base else b""
        start = position + from_base - content.base_bytes
        return data + bytes(content.tail[start : start + length - from_base])

    def map(self, length: int) -> memoryview:
        if self._base is not None and length <= self._content.base_bytes:
            return self._base.map(length)
        return memoryview(self.read(0, length))

    def truncate(self, size: int) -> None:
        self._content.truncate(size)

    def sync(self) -> None:
        """Nothing here outlives the process."""

    def close(self) -> None:
        base, self._base = self._base, None
        if base is not None:
            base.close()


class _NoLock:
    """What guards nothing, because nothing is written."""

    def release(self) -> None:
        """There is nothing to let go of."""


class BesideDisk:
    """The disk as it is, below what was written here, which is only in memory."""

    commits = None

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or SystemDisk()
        # What was written, or taken away where it is None.
        self._written: dict[Path, _Content | None] = {}
        self._made: set[Path] = set()
        self._removed: set[Path] = set()

    def create(self, path: Path, *, is_private: bool = False) -> File:  # noqa: ARG002 - Nobody can read it.
        content = self._written[path] = _Content()
        return _BesideFile(path, content, self._disk)

    def open(self, path: Path, *, writable: bool = False) -> File:
        if path not in self._written and not writable:
            return self._disk.open(path)
        return _BesideFile(path, self._content_of(path), self._disk)

    def _content_of(self, path: Path) -> _Content:
        """What a file has, kept apart from now on."""
        if path not in self._written:
            file = self._disk.open(path)
            self._written[path] = _Content(path, file.size())
            file.close()
        content = self._written[path]
        if content is None:
            raise FileNotFoundError(path)
        return content

    def names(self, directory: Path) -> list[str]:
        names = set() if directory in self._removed else set(self._disk.names(directory))
        names |= {path.name for path in self._made if path.parent == directory}
        names -= {path.name for path in self._removed if path.parent == directory}
        for path, content in self._written.items():
            if path.parent == directory:
                (names.discard if content is None else names.add)(path.name)
        return sorted(names)

    def is_directory(self, path: Path) -> bool:
        return path in self._made or (path not in self._removed and self._disk.is_directory(path))

    def exists(self, path: Path) -> bool:
        if path in self._written:
            return self._written[path] is not None
        return path in self._made or (path not in self._removed and self._disk.exists(path))

    def make_directory(self, path: Path) -> None:
        if not self.is_directory(path):
            self.make_directory(path.parent)
            self._made.add(path)
            self._removed.discard(path)

    def rename(self, source: Path, target: Path) -> None:
        self._written[target], self._written[source] = self._content_of(source), None

    def remove(self, path: Path) -> None:
        self._written[path] = None

    def remove_directory(self, path: Path) -> None:
        self._made.discard(path)
        self._removed.add(path)

    def free_bytes(self, path: Path) -> int:
        return self._disk.free_bytes(path)

    def sync_directory(self, directory: Path) -> None:
        """Nothing here outlives the process."""

    def lock(self, path: Path, *, with_directory: bool = False) -> _NoLock:  # noqa: ARG002 - It guards nothing.
        return _NoLock()
