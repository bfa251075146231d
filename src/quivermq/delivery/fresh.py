"""Reading what a group has not had yet: ahead, frame by frame, passing over what nobody may have."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Set
from contextlib import suppress
from typing import NamedTuple

from quivermq.delivery.ordering import KeyOrder, LaneOffset
from quivermq.delivery.state import LaneState
from quivermq.delivery.taken import Slice
from quivermq.errors import OffsetOutOfRange, StorageFailed
from quivermq.frame import CHUNK, REMOVED, Column, Frame, records_at
from quivermq.log import Log
from quivermq.model.messages import Record
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.partition import Partition, Readable

_AHEAD_BYTES = 128 * 1024
# A frame of more messages is read ahead in parts. More than a batch usually has.
_WHOLE_MESSAGES = 16_384
# As much as one call gives out of a lane: a small log of a codec may be larger than memory.
GIVEN_BYTES = 32 * 1024 * 1024
# The same of frames as they are stored, which whoever gets them holds as a whole.
_SLICED_BYTES = 8 * 1024 * 1024
# A message that is no further away than so many others is found by reading on.
_CLOSE = 16
# So many messages with a key may be in flight or wait, before a lane gives no further one.
KEYED_UNFINISHED_MAX = 10_000


class Fresh(NamedTuple):
    """Messages nobody had, what was passed over to find them, and where the lane goes on then."""

    records: list[Record]
    expired: list[int]
    waiting_for_key: list[int]
    next: int
    ahead_index: int


def fresh_messages(
    state: LaneState,
    log: Readable,
    count: int,
    *,
    now_us: int,
    removed: OffsetSet,
    order: KeyOrder | None,
    lane: int,
) -> Fresh:
    """Up to `count` messages from `state.next` on, fewer when they are large.

    Only what was read ahead is changed.
    """
    size = 0
    records: list[Record] = []
    expired: list[int] = []
    waiting_for_key: list[int] = []
    ahead_index, offset = state.ahead_index, state.next
    while len(records) < count:
        if ahead_index >= len(state.ahead):
            # What was taken out for everybody need not be read, and may be all of an archive.
            begin = max(offset, state.ahead_end, min(removed.floor, log.end))
            try:
                start = _read_ahead(state, log, begin)
            except StorageFailed:
                # What was found is good; the next one who looks gets the error.
                if records or expired or waiting_for_key:
                    break
                raise
            if start is None:
                break
            ahead_index, offset = 0, max(offset, start)
        room = (GIVEN_BYTES - size) // state.ahead_average
        if records and room <= 0:
            break
        chunk = state.ahead[ahead_index : ahead_index + min(count - len(records), max(1, room))]
        if not chunk:
            offset = state.ahead_end
            continue
        size += len(chunk) * state.ahead_average
        ahead_index += len(chunk)
        if removed or order is not None or state.has_conditions:
            for index, record in enumerate(chunk):
                if removed and record.offset in removed:
                    continue
                if record.expires_at is not None and record.expires_at <= now_us:
                    # What compaction has taken out did not expire: nobody counts it, it is no dead letter.
                    if record.expires_at != REMOVED:
                        expired.append(record.offset)
                elif order is not None and len(order) >= KEYED_UNFINISHED_MAX and record.key is not None:
                    return Fresh(
                        records, expired, waiting_for_key, record.offset, ahead_index - len(chunk) + index
                    )
                elif order is None or order.enter(record.key, LaneOffset(lane, record.offset)):
                    records.append(record)
                else:
                    waiting_for_key.append(record.offset)
        else:
            records += chunk
        offset = chunk[-1].offset + 1 if ahead_index < len(state.ahead) else state.ahead_end
    return Fresh(records, expired, waiting_for_key, offset, ahead_index)


def fresh_slices(state: LaneState, log: Log, count: int) -> tuple[list[Slice], int]:
    """Up to `count` messages from `state.next` on, as parts of frames, and where the lane goes on then.

    Fewer when they are large, and only as long as nothing has to be asked of a single message: none where
    the next one may expire.
    """
    slices: list[Slice] = []
    offset, size = state.next, 0
    while count > 0 and size < _SLICED_BYTES:
        frame = _frame_with(offset, state.frames)
        if frame is None:
            if offset >= log.end:
                break
            try:
                state.frames = _whole_frames(log, offset)
            except (OffsetOutOfRange, StorageFailed):
                # What was found is good; the next one who looks gets the error.
                break
            continue
        end = min(frame.header.end_offset, offset + count)
        if frame.is_control:
            end = frame.header.end_offset
        elif frame.header.columns & Column.EXPIRES_AT:
            break
        else:
            slices.append(Slice(frame, offset, end))
            count -= end - offset
            size += frame.header.frame_bytes
        offset = end
    return slices, offset


def waiting_since(state: LaneState, log: Log, before_us: int, count: int) -> tuple[int, int]:
    """When the next fresh message came in, and how many came in before a moment, `count` at most.

    All of a frame came in together, so only the frames that were read ahead are looked at.
    """
    offset = max(state.next, log.start)
    if offset >= log.end:
        return 0, 0
    if _frame_with(offset, state.frames) is None:
        try:
            state.frames = _whole_frames(log, offset)
        except (OffsetOutOfRange, StorageFailed):
            # Whoever takes it gets the error.
            return 0, 0
    since, found = 0, 0
    for frame in state.frames[max(0, _index_with(offset, state.frames)) :]:
        if found >= count or frame.header.append_time > before_us:
            break
        since = since or frame.header.append_time
        found += frame.header.end_offset - max(offset, frame.header.base_offset)
    return since, min(found, count)


def append_time_at(state: LaneState, log: Log, offset: int) -> int | None:
    """When the message at an offset came in; None where nobody can tell any more."""
    try:
        frame = _frame_with(offset, state.frames) or _frame_at(log, offset)
    except StorageFailed:
        # Whoever takes it gets the error.
        return None
    return None if frame is None else frame.header.append_time


def _frame_with(offset: int, frames: list[Frame]) -> Frame | None:
    index = _index_with(offset, frames)
    return frames[index] if index >= 0 and offset < frames[index].header.end_offset else None


def _index_with(offset: int, frames: list[Frame]) -> int:
    """Which of some frames, in their order, has an offset if any has."""
    return bisect_right(frames, offset, key=lambda frame: frame.header.base_offset) - 1


def _read_ahead(state: LaneState, log: Readable, offset: int) -> int | None:
    """Read the next frames into `state.ahead`, and return where that begins. None when there are none."""
    if offset >= log.end:
        return None
    start = log.first_from(offset)
    if start >= log.end:
        return None
    try:
        # One of which only a part was read is open already, and so may be those behind it.
        is_known = _frame_with(start, state.frames) is not None
        frames = state.frames[_index_with(start, state.frames) :] if is_known else _whole_frames(log, start)
    except OffsetOutOfRange:
        # Retention was faster; the next time the log begins later.
        return None
    ahead: list[Record] = []
    has_conditions = False
    end = start
    for frame in frames:
        header = frame.header
        first = max(0, start - header.base_offset)
        if len(frame) <= _WHOLE_MESSAGES:
            part = frame.records()[first:] if first else frame.records()
        else:
            # Of so many, not more than are likely to be asked for soon.
            part = frame.part(first, first + CHUNK)
        ahead += part
        has_conditions = has_conditions or bool(header.columns & Column.EXPIRES_AT)
        end = header.end_offset
        if part and part[-1].offset + 1 < end:
            end = part[-1].offset + 1
            break
    state.ahead, state.ahead_index, state.has_conditions = ahead, 0, has_conditions
    state.frames = frames
    messages = max(1, sum(map(len, frames)))
    state.ahead_average = max(1, sum(f.header.raw_bytes for f in frames) // messages)
    state.ahead_end = end
    return start if frames else None


def _whole_frames(log: Readable, start: int) -> list[Frame]:
    """Some frames from an offset on. Damage behind the first one is for the next time to find."""
    frames: list[Frame] = []
    size = 0
    try:
        for frame in log.frames(start):
            frames.append(frame)
            # As large as it gets in memory: what a codec made small may be a thousand times as large.
            size += max(frame.header.frame_bytes, frame.header.raw_bytes)
            if size >= _AHEAD_BYTES:
                break
    except StorageFailed:
        if not frames:
            raise
    return frames


def messages_at(partition: Partition, lane: int, offsets: Set[int]) -> Iterator[Record]:
    """The messages at some offsets, in order, each frame read once; without those that are gone.

    Gone is what retention has removed before it was archived, and what compaction has taken out.
    """
    left = deque(sorted(offsets))
    while left and partition.logs[lane] is not None:
        first = left[0]
        with suppress(OffsetOutOfRange):
            for frame in _close_frames(partition.readable(lane), left):
                base, end = frame.header.base_offset, frame.header.end_offset
                # An archive does not have what was taken out.
                while left and left[0] < base:
                    left.popleft()
                indexes: list[int] = []
                while left and left[0] < end:
                    indexes.append(left.popleft() - base)
                if indexes and not frame.is_control:
                    yield from (r for r in records_at(frame, indexes) if r.expires_at != REMOVED)
        if left and left[0] == first:
            left.popleft()


def _close_frames(log: Readable, left: deque[int]) -> Iterator[Frame]:
    """The frames from the first of those offsets on that are left, while the next one is not far away.

    To read on is much quicker than to look for each of many small frames in an archive.
    """
    for frame in log.frames(left[0]):
        yield frame
        if not left or left[0] - frame.header.end_offset > _CLOSE:
            return


def _frame_at(log: Readable, offset: int) -> Frame | None:
    try:
        return next(log.frames(offset), None)
    except OffsetOutOfRange:
        return None
