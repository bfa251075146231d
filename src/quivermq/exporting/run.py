"""An export from beginning to end. It goes to a file, which is there once it is whole, or to a stream."""

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from quivermq.disk import Buffer, Disk, OutputDisk
from quivermq.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from quivermq.exporting.formats import (
    ExportRange,
    Format,
    Output,
    Writer,
    format_of,
    writer_of,
)
from quivermq.reading.reader import NO_ARCHIVE, MessageReader, ProgressCallback, no_progress, reader_of
from quivermq.reading.rows import Bound, Range

_WRITE_BYTES = 1024 * 1024
_NAME_BYTES_MAX = 200


class FileOutput(Output):
    """A new file, under another name until it is whole and durable."""

    def __init__(self, disk: Disk, path: Path, *, overwrite: bool) -> None:
        super().__init__()
        self._disk = disk
        self._path = path
        self._overwrite = overwrite
        self._check()
        self._temporary = _temporary(path)
        self._file = disk.create(self._temporary)
        self._held: list[bytes] = []
        self._held_bytes = 0

    def _take(self, data: Buffer) -> None:
        # A copy, because the memory is its owner's again when this returns.
        self._held.append(bytes(data))
        self._held_bytes += len(data)
        if self._held_bytes >= _WRITE_BYTES:
            self._empty()

    def finish(self) -> None:
        self._empty()
        self._file.sync()
        self._file.close()
        self._check()
        self._disk.rename(self._temporary, self._path)
        self._disk.sync_directory(self._path.parent)

    def abandon(self) -> None:
        super().abandon()
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


class StreamOutput(Output):
    """Somebody else's stream, which gets everything at once and is left open."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream

    def _take(self, data: Buffer) -> None:
        # A stream without a buffer, as with PYTHONUNBUFFERED, may take a part.
        rest = memoryview(data)
        while rest:
            taken = self._stream.write(rest)
            if not taken:
                raise BlockingIOError("the stream takes nothing more: give one that waits until it can")
            rest = rest[taken:]

    def finish(self) -> None:
        self._stream.flush()


def _temporary(path: Path) -> Path:
    """A name beside the file, of this process alone."""
    name = path.name
    raw = name.encode(errors="surrogateescape")
    if len(raw) > _NAME_BYTES_MAX:
        name = hashlib.sha256(raw).hexdigest()
    return path.with_name(f".{name}.{os.getpid()}.exporting")


@dataclass(frozen=True, slots=True)
class ExportedLane:
    """What was exported of one priority of a partition: messages with offsets in [start, end)."""

    partition: int
    priority: str
    start: int
    end: int
    messages: int


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export did."""

    topic: str
    format: Format
    output: str | None
    """The file; None for a stream."""
    messages: int
    bytes: int
    seconds: float
    lanes: tuple[ExportedLane, ...]


def export(
    topic: str,
    output: "str | os.PathLike[str] | BinaryIO",
    *,
    path: "str | os.PathLike[str] | None" = None,
    server: str | None = None,
    key: str | None = None,
    start: Bound = None,
    end: Bound = None,
    partition: int | None = None,
    priority: str | None = None,
    format: "Format | str | None" = None,  # noqa: A002 - It is what it is called everywhere.
    archive: bool = True,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> ExportSummary:
    """Write a range of a topic to a file, which is there once all of it is, or to a binary stream.

    `path` is a data directory, which may be in use, `server` a broker, and `key` the key for it. `start`
    and `end` are offsets, or moments with a time zone; the end is left out. Without `format`, the name of
    the file decides. Archived messages are exported as well unless `archive` is false. Messages come by
    partition, priority and offset.

    Raises TopicNotFound, InvalidRequest, Conflict for a file that is there unless `overwrite`, and whatever
    reading raises; then there is no file.
    """
    wanted = ExportRange(start, end, partition, priority)
    begun = time.monotonic()
    reader = reader_of(path, server, key).with_archive(None if archive else NO_ARCHIVE)
    try:
        parts = wanted.parts(reader, topic)
        name = os.fspath(output) if isinstance(output, str | os.PathLike) else None
        chosen = format_of(format, name)
        if name is None:
            target: Output = StreamOutput(cast(BinaryIO, output))
        else:
            target = FileOutput(OutputDisk(), Path(name).absolute(), overwrite=overwrite)
        try:
            lanes = _write(reader, parts, writer_of(chosen, target), progress or no_progress)
            target.finish()
        except BaseException:
            target.abandon()
            raise
    finally:
        reader.close()
    messages = sum(lane.messages for lane in lanes)
    seconds = time.monotonic() - begun
    return ExportSummary(topic, chosen, name, messages, target.written, seconds, tuple(lanes))


def _write(
    reader: MessageReader, parts: list[Range], writer: Writer, progress: ProgressCallback
) -> list[ExportedLane]:
    """Write the ranges, and tell of all offsets how many are behind; not every offset has a message."""
    total, behind, lanes = sum(part.end - part.start for part in parts), 0, []
    for part in parts:
        messages = 0
        for count in writer.write(reader, part):
            messages += count
            progress("messages", behind + messages, total)
        behind += part.end - part.start
        lanes.append(ExportedLane(part.lane.partition, part.lane.priority, part.start, part.end, messages))
    writer.close()
    return lanes
