"""Other bytes in the place of segments that are there: how truncation and compaction reach the disk.

Readers may have a segment's frames mapped, and reading a mapped byte that is gone ends a process. So a
segment is not changed but replaced by a copy: first its index goes, because it would lead into the middle
of other frames; then one rename puts the copy in its place; then it gets an index of its own. Whatever a
crash leaves is a whole segment, with the right index or none. `maintenance.py` says when this happens, and
holds the locks.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from quivermq.disk import Buffer, Disk, File
from quivermq.errors import (
    Conflict,
    Corruption,
    DiskRefused,
    InvalidFrame,
    InvalidRequest,
    QuiverError,
    UnsupportedFrame,
)
from quivermq.frame import Column, Flag, Frame, Header, first_messages, is_bound, parse_header, stamp_of
from quivermq.frame.compaction import is_compacted_run
from quivermq.log.opening import remove_segment
from quivermq.segment import Damage, Segment, SparseIndex, copy_range, index_path, write_index
from quivermq.segment.index import Noter, load_index
from quivermq.segment.scan import FrameScan

logger = logging.getLogger(__name__)

# What a frame that stays bound has in common with what it was.
_BOUND_FIELDS = (
    *("message_count", "base_offset", "append_time", "timestamp_min", "timestamp_max", "producer_id"),
    *("base_sequence", "leader_epoch", "producer_epoch", "flags"),
)


class Replacement(NamedTuple):
    """Frames, checked, for the bytes [position, end) of a segment."""

    position: int
    end: int
    frames: Buffer


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A segment that is whole and durable, but does not have its name yet."""

    segment: Segment
    index: SparseIndex


class _Old(NamedTuple):
    """A frame that is to be replaced."""

    position: int
    header: Header
    is_fixed: bool
    """Whether it has to stay to the last byte: a note of a repair."""


class _New(NamedTuple):
    """A frame that is to stand there. Of what is in it only this is kept: it may be large."""

    position: int
    header: Header


def find_replacement(segment: Segment, data: Buffer, expected: str) -> Replacement | None:
    """Check that frames may stand in a segment; None when they do already. Changes nothing.

    Raises Conflict, InvalidRequest, Corruption.
    """
    # First what the headers say, because it costs little; whoever is wrong there is refused before anything
    # is decompressed.
    new = list(_headers(data))
    start, end = new[0].header.base_offset, new[-1].header.end_offset
    if not segment.base_offset <= start < end <= segment.end_offset:
        raise InvalidRequest(
            f"the frames take the offsets [{start}, {end}), the segment has"
            f" [{segment.base_offset}, {segment.end_offset}): send those of one segment"
        )
    old = _old_frames(segment, start, end)
    if (stamp := stamp_of(each.header for each in old)) != expected:
        if stamp == stamp_of(frame.header for frame in new):
            # Whoever sends them again does not know that they arrived.
            return None
        raise Conflict(
            f"the frames of offsets [{start}, {end}) are not what they were: read them again, then replace"
            " those"
        )
    if (old[0].header.base_offset, old[-1].header.end_offset) != (start, end):
        raise InvalidRequest(
            f"no frames begin with offset {start} and end with {end}: replace whole frames"
        )
    _check_kept(old, new)
    _check_bodies(data, old, new, segment.settings.frame_raw_bytes_max)
    last = old[-1]
    return Replacement(old[0].position, last.position + last.header.frame_bytes, data)


def _headers(data: Buffer) -> Iterator[_New]:
    """The frames that the bytes are, by their headers, each following on from the one before."""
    position, offset = 0, None
    while position < len(data):
        header = parse_header(data, position)
        if position + header.frame_bytes > len(data):
            raise InvalidFrame("the last frame is not all there", position=position)
        if offset is not None and header.base_offset != offset:
            raise InvalidFrame(
                f"the frame begins with offset {header.base_offset}, not {offset}", position=position
            )
        yield _New(position, header)
        position, offset = position + header.frame_bytes, header.end_offset
    if offset is None:
        raise InvalidRequest("there are no frames to put there")


def _check_bodies(data: Buffer, old: Sequence[_Old], new: Sequence[_New], raw_bytes_max: int) -> None:
    """Check the frames in full, one after the other. Raises InvalidFrame, InvalidRequest."""
    notes = {each.header.base_offset for each in old if each.is_fixed}
    for position, header in new:
        if header.flags & ~Flag.CONTROL:
            raise UnsupportedFrame(
                f"flags {header.flags:#x} are reserved: only the queue itself sets them", position=position
            )
        if header.raw_bytes > raw_bytes_max:
            # Everybody who reads it later has this limit.
            raise InvalidFrame(
                f"the body has {header.raw_bytes} bytes when decompressed, the limit is {raw_bytes_max}",
                position=position,
            )
        frame = Frame.behind(header, data, position, raw_bytes_max)
        frame.validate()
        if frame.is_control and header.base_offset not in notes and not is_compacted_run(frame):
            raise InvalidRequest(f"the control frame at offset {header.base_offset} is none of compaction")


def _old_frames(segment: Segment, start: int, end: int) -> list[_Old]:
    found = []
    try:
        for position, frame in segment.frames(start):
            is_fixed = frame.is_control and not is_compacted_run(frame)
            found.append(_Old(position, frame.header, is_fixed))
            if frame.header.end_offset >= end:
                break
    except FileNotFoundError:
        raise _removed(segment) from None
    return found


def _removed(segment: Segment) -> Conflict:
    return Conflict(f"{segment.path} was removed meanwhile: look at what the log has now")


def _check_kept(old: Sequence[_Old], new: Sequence[_New]) -> None:
    """Raise InvalidRequest unless everything is there that others rely on."""
    places = {frame.header.base_offset: frame.header for frame in new}
    for each in old:
        header, found = each.header, places.get(each.header.base_offset)
        if each.is_fixed and found != header:
            raise InvalidRequest(
                f"the note of a repair at offset {header.base_offset} has to stay as it is"
            )
        if is_bound(header) and (found is None or not _is_bound_like(found, header)):
            raise InvalidRequest(
                f"the frame of offset {header.base_offset} was sent by a producer or has deduplication ids:"
                " it keeps its offsets, its times and its producer"
            )
    bound = {each.header.base_offset for each in old if is_bound(each.header)}
    for _, header in new:
        if is_bound(header) and header.base_offset not in bound:
            raise InvalidRequest(f"there was no producer at offset {header.base_offset} before")
    moved = {each.header.base_offset for each in old if each.header.columns & Column.ORIGIN_ID}
    for position, header in new:
        if header.columns & Column.ORIGIN_ID and header.base_offset not in moved:
            raise UnsupportedFrame(
                "the column of origin ids is reserved: there was none at this offset before",
                position=position,
            )
    if new[-1].header.append_time != old[-1].header.append_time:
        raise InvalidRequest("the last frame has to keep the time at which it came in")


def _is_bound_like(new: Header, old: Header) -> bool:
    return is_bound(new) and all(getattr(new, name) == getattr(old, name) for name in _BOUND_FIELDS)


def write_copy(segment: Segment, replacement: Replacement) -> SegmentCopy:
    """The segment with other frames in it, durable under another name, every byte of it checked."""
    try:
        with copying(segment) as (source, copy):
            copy_range(source, copy, 0, replacement.position)
            copy.append([replacement.frames])
            copy_range(source, copy, replacement.end, segment.end)
            index = _index_of(segment, FrameScan(copy, raw_bytes_max=segment.settings.frame_raw_bytes_max))
            size = copy.size()
    except FileNotFoundError:
        raise _removed(segment) from None
    except QuiverError:
        discard_copy(segment)
        raise
    new = Segment(
        *(segment.disk, segment.directory, segment.base_offset, segment.settings),
        end_offset=segment.end_offset,
        end=size,
    )
    return SegmentCopy(new, index)


def _index_of(segment: Segment, scan: FrameScan) -> SparseIndex:
    """The index of a copy. What is wrong in the copy was wrong in the segment: raises Corruption."""
    index = SparseIndex(segment.base_offset)
    note = Noter(index, segment.settings.index_interval_bytes, index.mark[1])
    end, end_offset = 0, segment.base_offset
    for found in scan.frames(0, segment.base_offset):
        if isinstance(found, Damage):
            raise segment.corruption(found)
        note.frame(found)
        end, end_offset = found.end, found.frame.header.end_offset
    if end_offset != segment.end_offset:
        missing = Damage(
            end, end, (end_offset, segment.end_offset), "the file ends before the segment does"
        )
        raise segment.corruption(missing)
    if index.mark[2] != end:
        index.add(end_offset, note.timestamp_max, end)
    return index


def show_copy(copy: SegmentCopy, lock: threading.Lock, show: Callable[[Segment], None]) -> None:
    """Let a copy be the segment. Under the lock, so that nobody takes one file for the other."""
    segment = copy.segment
    disk, directory = segment.disk, segment.directory
    remove_index(segment)
    with lock:
        disk.rename(_copy_path(segment), segment.path)
        show(segment)
    disk.sync_directory(directory)
    try:
        write_index(disk, directory, copy.index)
    except DiskRefused as error:
        # Whoever needs it builds it, in memory, each time that the log is opened.
        logger.warning("%s has no index on disk: %s", segment.path, error)


@contextmanager
def copying(segment: Segment) -> Iterator[tuple[File, File]]:
    """The file of a segment, and a new one for its copy, which is durable when this ends."""
    disk = segment.disk
    with closing(disk.open(segment.path)) as source, closing(disk.create(_copy_path(segment))) as copy:
        yield source, copy
        copy.sync()


def _copy_path(segment: Segment) -> Path:
    return segment.path.with_suffix(".tmp")


def use_copy(segment: Segment) -> None:
    """Put the copy in the segment's place, without an index: it is made anew when the log is opened."""
    remove_index(segment)
    segment.disk.rename(_copy_path(segment), segment.path)
    segment.disk.sync_directory(segment.directory)


def remove_index(segment: Segment) -> None:
    """Take the index away, durably: it promises what another file does not have."""
    path = index_path(segment.directory, segment.base_offset)
    if segment.disk.exists(path):
        segment.disk.remove(path)
        segment.disk.sync_directory(segment.directory)


def discard_copy(segment: Segment) -> None:
    """Take away a copy that did not become the segment."""
    path = _copy_path(segment)
    if segment.disk.exists(path):
        segment.disk.remove(path)


class Cut(NamedTuple):
    """What is to go: whole segments, and the end of one from `position` on, but for its `head`."""

    removed: Sequence[Segment]
    shortened: Segment | None = None
    position: int = 0
    head: Frame | None = None


def find_cut(segments: Sequence[Segment], end: int) -> Cut:
    """How to remove everything from offset `end` on. Changes nothing.

    The first segment stays in any case: its name is what remembers where the log begins. Raises
    Corruption when the frame that `end` cuts through cannot be read.
    """
    kept = [segment for segment in segments if segment.base_offset < end] or [segments[0]]
    removed, last = segments[len(kept) :], kept[-1]
    if end >= last.end_offset:
        return Cut(removed)
    try:
        position, frame = next(last.frames(end))
    except Corruption as damage:
        if damage.offsets[0] != end or damage.path != last.path:
            raise
        return Cut(removed, last, damage.position)
    count = end - frame.header.base_offset
    return Cut(removed, last, position, first_messages(frame, count) if count else None)


def make_cut(cut: Cut, *, in_place: bool = False) -> None:
    """Remove what `find_cut` has found. Nobody writes to the segments meanwhile.

    With `in_place` nobody has the frames mapped either, and the cut divides none.
    """
    for segment in reversed(cut.removed):
        remove_segment(segment.disk, segment.directory, segment.base_offset)
    if cut.shortened is None:
        return
    if in_place:
        assert cut.head is None, "a frame cannot be divided where it is"
        _shorten_in_place(cut.shortened, cut.position)
    else:
        _shorten(cut.shortened, cut.position, cut.head)


def _shorten_in_place(segment: Segment, position: int) -> None:
    """Take the end away without any room for a copy. The index goes first: it promises what it marks."""
    disk, directory = segment.disk, segment.directory
    index = load_index(disk, directory, segment.base_offset)
    if index is not None and index.mark[2] > position:
        index.cut(position)
        _shorten_file(disk, index_path(directory, segment.base_offset), index.file_bytes)
    _shorten_file(disk, segment.path, position)


def _shorten_file(disk: Disk, path: Path, size: int) -> None:
    with closing(disk.open(path, writable=True)) as file:
        file.truncate(size)
        file.sync()


def _shorten(segment: Segment, position: int, head: Frame | None) -> None:
    with copying(segment) as (source, copy):
        copy_range(source, copy, 0, position)
        if head is not None:
            copy.append(head.buffers())
    use_copy(segment)
