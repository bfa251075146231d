"""Which segments of a log may go. It only looks; the log removes them."""

from collections.abc import Sequence
from typing import NamedTuple

from quivermq.segment import Segment
from quivermq.settings import StorageSettings


class Extent(NamedTuple):
    """What retention needs to know of a segment."""

    end_offset: int
    messages: int
    bytes: int
    newest_us: int | None
    """When its newest frame came in; None when that is unknown, which keeps it from growing old."""


class Removed(NamedTuple):
    """What a log gave up."""

    segments: int = 0
    messages: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, extents: Sequence[Extent]) -> "Removed":
        return cls(
            segments=len(extents),
            messages=sum(extent.messages for extent in extents),
            bytes=sum(extent.bytes for extent in extents),
        )


def extent_of(segment: Segment) -> Extent:
    """What retention needs to know of this segment."""
    return Extent(segment.end_offset, segment.messages, segment.end, segment.last_append_time())


def removable(extents: Sequence[Extent], now_us: int, floor: int | None, settings: StorageSettings) -> int:
    """How many of the oldest segments may go.

    `extents` are all segments, oldest first, the active one last; that one always stays. `floor` is
    the first offset that somebody still needs; None when nobody needs any.
    """
    bytes_kept = sum(extent.bytes for extent in extents)
    messages_kept = sum(extent.messages for extent in extents)
    count = 0
    for extent in extents[:-1]:
        kept = len(extents) - count
        is_needed = floor is not None and extent.end_offset > floor
        if is_needed or kept <= settings.segments_min:
            break
        if not (
            _is_over(bytes_kept, settings.retention_bytes)
            or _is_over(messages_kept, settings.retention_messages)
            or _is_over(kept, settings.segments_max)
            or is_expired(extent, now_us, settings)
        ):
            break
        bytes_kept -= extent.bytes
        messages_kept -= extent.messages
        count += 1
    return count


def is_expired(extent: Extent, now_us: int, settings: StorageSettings) -> bool:
    """Whether the segment's newest frame is older than the log keeps any."""
    if settings.retention_ms is None or extent.newest_us is None:
        return False
    return now_us - extent.newest_us > settings.retention_ms * 1000


def _is_over(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit
