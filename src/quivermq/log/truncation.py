"""Cutting a log off at an offset.

Readers may have the frames mapped, and reading a mapped byte that is gone ends a process: so the last
segment is not shortened but replaced by a shorter copy, unless the caller knows that nobody has. After a
crash in between, the log ends at some frame behind the cut and is whole.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from quivermq.disk import Disk
from quivermq.errors import Corruption
from quivermq.frame import Frame, first_messages
from quivermq.log.opening import remove_segment
from quivermq.segment import Segment, copy_range, index_path
from quivermq.segment.segment import load_index


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
    file = disk.open(path, writable=True)
    try:
        file.truncate(size)
        file.sync()
    finally:
        file.close()


def _shorten(segment: Segment, position: int, head: Frame | None) -> None:
    disk, directory = segment.disk, segment.directory
    temporary = segment.path.with_suffix(".tmp")
    with ExitStack() as files:
        source = disk.open(segment.path)
        files.callback(source.close)
        copy = disk.create(temporary)
        files.callback(copy.close)
        copy_range(source, copy, 0, position)
        if head is not None:
            copy.append(head.buffers())
        copy.sync()
    # The index promises what the shorter log does not have. It is made anew when the log is opened.
    index = index_path(directory, segment.base_offset)
    if disk.exists(index):
        disk.remove(index)
        disk.sync_directory(directory)
    disk.rename(temporary, segment.path)
    disk.sync_directory(directory)
