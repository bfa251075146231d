"""Segments made by hand, frame by frame, for tests that care about each byte."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from quivermq.disk import Disk, SystemDisk
from quivermq.frame import Frame, encode
from quivermq.segment import SegmentWriter, Tail, inspect_tail, recover
from quivermq.settings import StorageSettings

NOON_US = 1_700_000_000_000_000

Batch = Sequence[bytes]


def frame_at(offset: int, *values: bytes, timestamp: int | Sequence[int] = NOON_US) -> Frame:
    """A frame of these messages at its place in a log."""
    return encode(values, timestamp=timestamp).stamped(offset, NOON_US)


def frames_from(offset: int, *batches: Batch) -> list[Frame]:
    """One frame a batch, each behind the one before it."""
    frames = []
    for batch in batches:
        frames.append(frame_at(offset, *batch))
        offset += len(batch)
    return frames


def joined(frames: Iterable[Frame]) -> bytes:
    return b"".join(map(bytes, frames))


def ends(frames: Iterable[Frame]) -> list[int]:
    """Where each frame ends when they lie one behind the other."""
    result, position = [], 0
    for frame in frames:
        position += frame.header.frame_bytes
        result.append(position)
    return result


def new_segment(
    directory: Path, base_offset: int = 0, *, disk: Disk | None = None, **settings: Any
) -> SegmentWriter:
    disk = disk or SystemDisk()
    disk.make_directory(directory)
    return SegmentWriter.create(disk, directory, base_offset, StorageSettings(**settings))


def put(writer: SegmentWriter, *batches: Batch, timestamp: int | Sequence[int] = NOON_US) -> None:
    """Append one frame a batch."""
    for batch in batches:
        writer.append([encode(batch, timestamp=timestamp)], NOON_US)


def recovered(
    directory: Path,
    base_offset: int = 0,
    *,
    disk: Disk | None = None,
    is_last: bool = True,
    **settings: Any,
) -> Tail:
    disk = disk or SystemDisk()
    tail = inspect_tail(disk, directory, base_offset, StorageSettings(**settings), is_last=is_last)
    recover(disk, directory, tail, is_last=is_last)
    return tail
