"""Cutting a log off at an offset.

Readers may have the frames mapped, and reading a mapped byte that is gone ends a process: so the last
segment is not shortened but replaced by a shorter copy. After a crash in between, the log ends at some
frame behind the cut and is whole.
"""

from collections.abc import Sequence

from quivermq.frame import first_messages
from quivermq.log.opening import remove_segment
from quivermq.segment import Segment, copy_range, index_path


def truncate_segments(segments: Sequence[Segment], end: int) -> None:
    """Remove everything from offset `end` on. Nobody writes to the segments meanwhile.

    The first segment stays in any case: its name is what remembers where the log begins.
    """
    kept = [segment for segment in segments if segment.base_offset < end] or [segments[0]]
    for segment in reversed(segments[len(kept) :]):
        remove_segment(segment.disk, segment.directory, segment.base_offset)
    if end < kept[-1].end_offset:
        _shorten(kept[-1], end)


def _shorten(segment: Segment, end: int) -> None:
    disk, directory = segment.disk, segment.directory
    position, frame = next(segment.frames(end))
    temporary = segment.path.with_suffix(".tmp")
    source, copy = disk.open(segment.path), disk.create(temporary)
    try:
        copy_range(source, copy, 0, position)
        if frame.header.base_offset < end:
            copy.append(first_messages(frame, end - frame.header.base_offset).buffers())
        copy.sync()
    finally:
        source.close()
        copy.close()
    # The index promises what the shorter log does not have. It is made anew when the log is opened.
    index = index_path(directory, segment.base_offset)
    if disk.exists(index):
        disk.remove(index)
        disk.sync_directory(directory)
    disk.rename(temporary, segment.path)
    disk.sync_directory(directory)
