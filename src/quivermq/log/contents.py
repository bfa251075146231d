"""What each segment of a log holds, told from its index and its headers: no message is looked at."""

from typing import NamedTuple

from quivermq.errors import Corruption, InvalidFrame
from quivermq.frame import parse_header
from quivermq.segment import Segment


class SegmentContents(NamedTuple):
    """One segment. Times are unix microseconds, None where it is empty or cannot be read."""

    base_offset: int
    end_offset: int
    size_bytes: int
    first_timestamp: int | None
    """The smallest one of the first frame."""
    last_timestamp: int | None
    """The largest one of all."""


def contents(segment: Segment) -> SegmentContents:
    """What a segment holds. Raises FileNotFoundError when retention was faster."""
    first = last = None
    try:
        if segment.messages:
            first = next(segment.frames(segment.base_offset))[1].header.timestamp_min
            last = _last_timestamp(segment)
    except Corruption:
        pass  # A table of segments says nothing about damage: `verify` and `audit` do.
    segment.forget_index()
    return SegmentContents(
        segment.base_offset,
        segment.end_offset,
        segment.end,
        first,
        last,
    )


def _last_timestamp(segment: Segment) -> int:
    # The index of a segment that is being written knows all but the frames of its last few kilobytes.
    offset, largest, _ = segment.index.mark
    return max(
        largest, max((frame.header.timestamp_max for _, frame in segment.frames(offset)), default=largest)
    )


def count_frames(segment: Segment) -> int | None:
    """How many frames a segment has, told from their headers alone; None when one cannot be read."""
    if not segment.end:
        return 0
    file = segment.disk.open(segment.path)
    try:
        memory = file.map(segment.end)
    finally:
        file.close()
    position = frames = 0
    try:
        while position < segment.end:
            position += parse_header(memory, position).frame_bytes
            frames += 1
    except InvalidFrame:
        return None
    return frames
