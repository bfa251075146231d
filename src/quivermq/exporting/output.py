"""Where an export goes: a file that is there once it is whole, or a stream."""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Protocol

from quivermq.disk import Buffer, Disk
from quivermq.errors import Conflict, InvalidRequest, NotFound, StorageFailed

_WRITE_BYTES = 1024 * 1024
_NAME_BYTES_MAX = 200


class Output(Protocol):
    """Takes bytes one after the other, and keeps them only if it is finished."""

    written: int

    def write(self, data: Buffer) -> int: ...

    def finish(self) -> None:
        """Everything was written."""
        ...

    def abandon(self) -> None:
        """Something went wrong: leave nothing behind, and take no more.

        pyarrow's writers, when they are thrown away, write what belongs behind the last message.
        """
        ...


class FileOutput:
    """A new file, under another name until it is whole and durable."""

    def __init__(self, disk: Disk, path: Path, *, overwrite: bool) -> None:
        self._disk = disk
        self._path = path
        self._overwrite = overwrite
        self._check()
        self._temporary = _temporary(path)
        self._file = disk.create(self._temporary)
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_over = False
        self.written = 0

    def write(self, data: Buffer) -> int:
        if self._is_over:
            return len(data)
        # A copy, because the memory is its owner's again when this returns.
        part = bytes(data)
        self._held.append(part)
        self._held_bytes += len(part)
        self.written += len(part)
        if self._held_bytes >= _WRITE_BYTES:
            self._empty()
        return len(part)

    def finish(self) -> None:
        self._empty()
        self._file.sync()
        self._file.close()
        self._check()
        self._disk.rename(self._temporary, self._path)
        self._disk.sync_directory(self._path.parent)

    def abandon(self) -> None:
        self._is_over = True
        self._file.close()
        if self._disk.exists(self._temporary):
            self._disk.remove(self._temporary)

    def _empty(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._file.append(held)

    def _check(self) -> None:
        """Raise unless the file may be put in its place."""
        path, disk = self._path, self._disk
        if not disk.is_directory(path.parent):
            raise NotFound(f"there is no directory {path.parent} to write {path.name} to")
        if not disk.exists(path):
            return
        try:
            disk.open(path).close()
        except StorageFailed:
            # A directory, a link or a device: what takes its place would not be one.
            raise InvalidRequest(f"{path} is not a file that could be replaced: give another") from None
        if not self._overwrite:
            raise Conflict(f"{path} is there already: allow to overwrite it, or give another")


class StreamOutput:
    """Somebody else's stream, which gets everything at once and is left open."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._is_over = False
        self.written = 0

    def write(self, data: Buffer) -> int:
        if self._is_over:
            return len(data)
        # A stream without a buffer, as with PYTHONUNBUFFERED, may take a part.
        rest = memoryview(data)
        while rest:
            taken = self._stream.write(rest)
            if not taken:
                raise BlockingIOError("the stream takes nothing more: give one that waits until it can")
            rest = rest[taken:]
        self.written += len(data)
        return len(data)

    def finish(self) -> None:
        self._stream.flush()

    def abandon(self) -> None:
        # What is written is written.
        self._is_over = True


def _temporary(path: Path) -> Path:
    """A name beside the file, of this process alone."""
    name = path.name
    raw = name.encode(errors="surrogateescape")
    if len(raw) > _NAME_BYTES_MAX:
        name = hashlib.sha256(raw).hexdigest()
    return path.with_name(f".{name}.{os.getpid()}.exporting")
