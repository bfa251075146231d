"""Which segments of a log may go. It only looks; the log removes them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from quivermq.settings import StorageSettings


class Kept(Protocol):
    """What retention asks a segment."""

    @property
    def end_offset(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def end(self) -> int: ...

    def last_append_time(self) -> int | None: ...


class Removed(NamedTuple):
    """What a log gave up."""

    segments: int = 0
    messages: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, segments: Sequence[Kept]) -> "Removed":
        return cls(
            segments=len(segments),
            messages=sum(segment.messages for segment in segments),
            bytes=sum(segment.end for segment in segments),
        )


def removable(
    segments: Sequence[Kept], now_us: int, floor: int | None, finished: int, settings: StorageSettings
) -> int:
    """How many of the oldest segments may go.

    `segments` are all of a log, oldest first; the last one is active and stays. `floor` is the first
    offset that somebody still needs; None when nobody needs any. What lies before `finished` goes
    whatever the limits say.
    """
    total = Removed.of(segments)
    gone = Removed()
    for segment in segments[:-1]:
        kept = total.segments - gone.segments
        is_needed = floor is not None and segment.end_offset > floor
        is_finished = segment.end_offset <= finished
        if is_needed or (kept <= settings.segments_min and not is_finished):
            break
        if not (
            is_finished
            or _is_over(kept, settings.segments_max)
            or _is_over(total.bytes - gone.bytes, settings.retention_bytes)
            or _is_over(total.messages - gone.messages, settings.retention_messages)
            or is_expired(segment, now_us, settings)
        ):
            break
        gone = Removed(gone.segments + 1, gone.messages + segment.messages, gone.bytes + segment.end)
    return gone.segments


def is_expired(segment: Kept, now_us: int, settings: StorageSettings) -> bool:
    """Whether the segment's newest frame is older than the log keeps any.

    Never for a segment whose newest frame cannot be read: what is damaged waits for its repair.
    """
    if settings.retention_ms is None:
        return False
    newest_us = segment.last_append_time()
    return newest_us is not None and now_us - newest_us > settings.retention_ms * 1000


def _is_over(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit
