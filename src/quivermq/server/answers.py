"""How much goes into one answer, which is made in memory, and parts of a log as answers. Blocks.

What was taken out of a partition for everybody, such as a dead letter that went back, is not shown. A
frame that has such messages comes as frames of those that are left, each at its place; all others come as
they are, and with them what compaction has emptied, which its readers know by when it expired.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count, groupby, islice
from typing import TypeVar

from quivermq.clock import SteadyClock
from quivermq.disk import Buffer
from quivermq.engine.archived import EVERYTHING
from quivermq.engine.hosted import Hosted
from quivermq.engine.inspection import LaneView, average_bytes
from quivermq.frame import ANONYMOUS, Frame, Header, Producer, Wanted, encode_records
from quivermq.model.lanes import LANES
from quivermq.server.messages_json import MessageOut, record_to_json
from quivermq.topic.offsets import OffsetSet

T = TypeVar("T")

# Messages are listed until they are about this large together; the first one comes in any case.
ANSWER_BYTES = 8 * 1024 * 1024

# About what a message takes in JSON beside its value.
FIELDS_BYTES = 200

# How often a message is in memory while an answer is made: as frames, or in JSON.
FRAME_COPIES, JSON_COPIES = 2, 4

# A search looks at no more than this before it answers with where to go on: others want the thread, too.
_SEARCHED_BYTES = 64 * 1024 * 1024
_SEARCHED_S = 0.25


class SearchTime:
    """How long one call may search. What it has not come to is for the next one."""

    def __init__(self, clock: SteadyClock) -> None:
        self._now = clock.monotonic
        self._end = self._now() + _SEARCHED_S
        self._left_bytes = _SEARCHED_BYTES

    def is_over(self, searched_bytes: int) -> bool:
        """Whether that was enough, now that so many bytes more were searched."""
        self._left_bytes -= searched_bytes
        return self._left_bytes <= 0 or self._now() >= self._end


def making_bytes(hosted: Hosted, limit: int, copies: int) -> int:
    """About how much memory it takes to make an answer of up to so many messages of a topic.

    `copies` is how often each of them is there then: read, taken apart, put into words, put together.
    """
    average = average_bytes(hosted) + FIELDS_BYTES
    return max(average, min(limit * average, ANSWER_BYTES)) * copies


def within(items: Iterable[T], limit: int, size_of: Callable[[T], int]) -> Iterator[T]:
    """The first items, up to `limit`, and no more than fit into an answer."""
    size = 0
    for item in islice(items, limit):
        yield item
        size += size_of(item) + FIELDS_BYTES
        if size >= ANSWER_BYTES:
            return


def read_messages(
    lane: LaneView, offset: int, limit: int, wanted: Wanted = EVERYTHING
) -> tuple[list[MessageOut], int]:
    """Up to `limit` messages, fewer when they are large, and the offset to go on with.

    Whoever looks for something gets an answer after a while in any case. Raises OffsetOutOfRange.
    """
    topic, number, priority = lane.partition.topic, lane.partition.number, LANES[lane.number]
    removed, found, size, seam = lane.removed, list[MessageOut](), 0, lane.seam
    patience = SearchTime(lane.engine.clock) if wanted else None
    for frame in seam.frames(offset):
        for record in wanted.records(frame, offset):
            if record.offset < offset or record.offset in removed:
                continue
            found.append(record_to_json(record, topic, number, priority))
            size += len(record.value) + FIELDS_BYTES
            if len(found) >= limit or size >= ANSWER_BYTES:
                return found, record.offset + 1
        if patience is not None and patience.is_over(frame.header.raw_bytes):
            return found, max(offset, frame.header.end_offset)
    return found, seam.reached


def read_frames(lane: LaneView, offset: int, limit: int) -> tuple[list[Buffer], int]:
    """Whole frames of about `limit` messages, fewer when they are large, and the offset to go on with.

    Raises OffsetOutOfRange.
    """
    removed, buffers, size, seam = lane.removed, list[Buffer](), 0, lane.seam
    for frame in seam.frames(offset):
        header = frame.header
        buffers += _left_of(frame, removed) if removed and _is_touched(frame, removed) else frame.buffers()
        size += header.frame_bytes
        if header.end_offset - offset >= limit or size >= ANSWER_BYTES:
            return buffers, max(offset, header.end_offset)
    # Where nothing is left there is no frame, and whoever reads on has to get behind it.
    return buffers, seam.reached


def _is_touched(frame: Frame, removed: OffsetSet) -> bool:
    return any(offset in removed for offset in range(frame.header.base_offset, frame.header.end_offset))


def _left_of(frame: Frame, removed: OffsetSet) -> Iterator[Buffer]:
    """What was not taken out, as a frame for each run of offsets, from the same producer."""
    left = [record for record in frame.records() if record.offset not in removed]
    indexes = count()
    for _, run in groupby(left, key=lambda record: record.offset - next(indexes)):
        records = list(run)
        producer = _producer_at(frame.header, records[0].offset)
        yield from encode_records(records, frame.header.append_time, producer, frame.header.flags).buffers()


def _producer_at(header: Header, offset: int) -> Producer:
    """Who sent the message of an offset, and its sequence."""
    if not header.producer_id:
        return ANONYMOUS
    sequence = (header.base_sequence + offset - header.base_offset) % 2**32
    return Producer(header.producer_id, header.producer_epoch, sequence)
