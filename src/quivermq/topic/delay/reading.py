"""Finding ranks and messages in the logs of buckets. It only reads, so it needs no lock."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

from quivermq.errors import InvalidFrame, OffsetOutOfRange
from quivermq.frame import Column, Frame, Layout
from quivermq.log import Log
from quivermq.topic.delay.message import (
    DUE_SHIFT,
    RANK_END,
    WaitingMessage,
    due_of,
    id_of,
    offset_of,
    rank_of,
    serial_of,
    stored_at,
)
from quivermq.topic.delay.upcoming import Lowest
from quivermq.topic.offsets import OffsetSet

# Walking over so many frames takes no longer than looking one up.
_FRAMES_NEAR = 4
_MESSAGE_BYTES = 200


class BucketRange(NamedTuple):
    """What waits in a bucket: the ranks from `low` on, before the offset `end`, that are not cancelled."""

    serial: int
    log: Log
    end: int
    low: int
    cancelled: OffsetSet

    def frames(self) -> Iterator[Frame]:
        """The frames that may hold some of it."""
        for frame in self.log.frames():
            if frame.header.base_offset >= self.end:
                return
            yield frame

    def ranks(self, low: int, high: int) -> Iterator[list[int]]:
        """What waits from `low` up to `high`, frame by frame, as it comes."""
        for frame in self.frames():
            yield self.pending(_ranks(frame, self.serial, max(low, self.low), high))

    def pending(self, ranks: list[int]) -> list[int]:
        """Those that are not cancelled."""
        cancelled = self.cancelled
        if not cancelled:
            return ranks
        return [rank for rank in ranks if offset_of(rank) not in cancelled]


class BucketCount(NamedTuple):
    """How much waits in a bucket, and how many offsets of it a repair has left empty."""

    pending: int
    gaps: int


def survey(source: BucketRange) -> BucketCount:
    """Count what waits in a bucket of which some is released."""
    pending = gaps = 0
    for frame in source.frames():
        if frame.is_control:
            gaps += len(frame)
        else:
            pending += len(source.pending(_ranks(frame, source.serial, source.low, RANK_END)))
    return BucketCount(pending, gaps)


def gather(source: BucketRange, low: int, found: Lowest) -> tuple[int, int]:
    """Add to `found` what waits in a bucket from `low` on, as far as `found` reaches.

    Returns a rank before which nothing more waits in the bucket, and how many offsets are empty.
    """
    beyond, gaps = RANK_END, 0
    low = max(low, source.low)
    for frame in source.frames():
        if frame.is_control:
            gaps += len(frame)
            continue
        found.add(source.pending(_ranks(frame, source.serial, low, found.end)))
        if frame.header.timestamp_max >= due_of(found.end):
            beyond = min(beyond, _first_from(frame, source.serial, found.end))
    return beyond, gaps


def _ranks(frame: Frame, serial: int, low: int, high: int) -> list[int]:
    header = frame.header
    if frame.is_control or header.timestamp_max < due_of(low) or header.timestamp_min > due_of(high):
        return []
    first = rank_of(0, serial, header.base_offset)
    return [
        rank
        for behind, due in enumerate(_dues(frame), first)
        if low <= (rank := due << DUE_SHIFT | behind) < high
    ]


def _first_from(frame: Frame, serial: int, low: int) -> int:
    """The smallest rank from `low` on, or something smaller, but not before `low`."""
    if frame.header.timestamp_min > due_of(low):
        return frame.header.timestamp_min << DUE_SHIFT
    return min(_ranks(frame, serial, low, RANK_END), default=RANK_END)


def _dues(frame: Frame) -> Iterable[int]:
    header = frame.header
    if header.timestamp_min == header.timestamp_max:
        return repeat(header.timestamp_min, header.message_count)
    column = frame.shallow_layout.timestamp
    if column is None:
        raise InvalidFrame("timestamps differ, but their column is missing", position=0)
    return column.values()


def due_at(log: Log, offset: int) -> int | None:
    """When the message at an offset is due; None when there is none."""
    if not log.start <= offset < log.end:
        return None
    frame = next(log.frames(offset))
    if frame.is_control:
        return None
    return list(_dues(frame))[offset - frame.header.base_offset]


def fetch(
    ranks: list[int], log_of: Callable[[int], Log], bytes_max: int | None = None
) -> list[WaitingMessage]:
    """The messages of these ranks, in order; when all would be far over `bytes_max`, only the first ones.

    Each frame is read once, however its messages are scattered over the order. `log_of` gives a bucket's
    log by its serial number.
    """
    found: list[WaitingMessage] = []
    size, end = 0, RANK_END
    wanted: dict[int, list[int]] = {}
    for rank in ranks:
        wanted.setdefault(serial_of(rank), []).append(rank)
    for serial, of_bucket in wanted.items():
        of_bucket.sort(key=offset_of)
        for rank, frame, columns in _frames_of(log_of(serial), of_bucket):
            if rank >= end:
                continue
            found.append(stored_at(columns, offset_of(rank) - frame.header.base_offset, rank))
            size += _MESSAGE_BYTES + len(found[-1].value)
            if bytes_max is not None and size > 2 * bytes_max and len(found) > 1:
                end, size = _cut(found, bytes_max)
    found.sort()
    return found


def _cut(found: list[WaitingMessage], bytes_max: int) -> tuple[int, int]:
    """Forget the last messages, up to the size but for one: where they began, and what is left."""
    found.sort()
    size, count = 0, 0
    while count < len(found) - 1 and (count == 0 or size < bytes_max):
        size += _MESSAGE_BYTES + len(found[count].value)
        count += 1
    end = found[count].rank
    del found[count:]
    return end, size


def _frames_of(log: Log, ranks: Iterable[int]) -> Iterator[tuple[int, Frame, Layout]]:
    """Each rank with the frame that holds it; the ranks go up in their offsets."""
    frames: Iterator[Frame] = iter(())
    frame = known = None
    for rank in ranks:
        offset = offset_of(rank)
        if frame is None or offset - frame.header.end_offset > _FRAMES_NEAR * len(frame):
            frames = log.frames(offset)
            frame = next(frames, None)
        while frame is not None and offset >= frame.header.end_offset:
            frame = next(frames, None)
        if frame is None or frame.is_control:
            raise OffsetOutOfRange(offset, start=log.start, end=log.end)
        if frame is not known:
            known, columns = frame, frame.shallow_layout
        yield rank, frame, columns


class DedupId(NamedTuple):
    """The deduplication id of a message that waits, when it was put, and where it will come."""

    dedup_id: str
    put_at: int
    partition: int
    lane: int
    id: str


def dedup_ids(source: BucketRange) -> Iterator[DedupId]:
    """The deduplication id of each message that waits and has one."""
    for frame in source.frames():
        if frame.is_control or not frame.header.columns & Column.DEDUP_ID:
            continue
        columns = frame.shallow_layout
        for rank in source.pending(_ranks(frame, source.serial, source.low, RANK_END)):
            message = stored_at(columns, offset_of(rank) - frame.header.base_offset, rank)
            if message.dedup_id is not None:
                put_at = frame.header.append_time
                yield DedupId(message.dedup_id, put_at, message.partition, message.lane, id_of(rank))
