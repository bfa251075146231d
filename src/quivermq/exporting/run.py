"""An export from beginning to end, and where it goes: a file that is there once it is whole, or a stream."""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from quivermq.disk import Buffer, Disk, OutputDisk
from quivermq.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from quivermq.exporting.formats import (
    Bound,
    ExportRange,
    Format,
    LaneRange,
    Output,
    Writer,
    format_of,
    writer_of,
)
from quivermq.spark.place import Place, place_of
from quivermq.spark.progress import Progress, no_progress
from quivermq.spark.source.archived import with_archive
from quivermq.spark.times import Times

_WRITE_BYTES = 1024 * 1024
_NAME_BYTES_MAX = 200
_NO_ARCHIVE = "false"


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
    progress: Progress | None = None,
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
    place = with_archive(
        place_of(None if path is None else os.fspath(path), server, key), None if archive else _NO_ARCHIVE
    )
    try:
        parts = wanted.parts(place, topic)
        name = os.fspath(output) if isinstance(output, str | os.PathLike) else None
        chosen = format_of(format, name)
        with _opened(output, overwrite=overwrite) as target:
            lanes = _write(place, parts, wanted.times, writer_of(chosen, target), progress or no_progress)
    finally:
        place.close()
    return ExportSummary(
        topic=topic,
        format=chosen,
        output=name,
        messages=sum(lane.messages for lane in lanes),
        bytes=target.written,
        seconds=time.monotonic() - begun,
        lanes=tuple(lanes),
    )


@contextmanager
def _opened(output: "str | os.PathLike[str] | BinaryIO", *, overwrite: bool) -> Iterator[Output]:
    """Where to write to: finished at the end or, after an error, gone."""
    if isinstance(output, str | os.PathLike):
        target: Output = FileOutput(OutputDisk(), Path(output).absolute(), overwrite=overwrite)
    else:
        target = StreamOutput(output)
    try:
        yield target
        target.finish()
    except BaseException:
        target.abandon()
        raise


def _write(
    place: Place, parts: list[LaneRange], times: Times, writer: Writer, progress: Progress
) -> list[ExportedLane]:
    """Write the ranges, and tell of all offsets how many are behind; not every offset has a message."""
    total, behind, lanes = sum(part.end - part.start for part in parts), 0, []
    for part in parts:
        messages = 0
        for count in writer.write(place, part, times):
            messages += count
            progress("messages", behind + messages, total)
        behind += part.end - part.start
        lanes.append(ExportedLane(part.lane.partition, part.lane.priority, part.start, part.end, messages))
    writer.close()
    return lanes
