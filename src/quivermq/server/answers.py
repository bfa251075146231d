"""How much goes into one answer, which is made in memory, and parts of a log as answers. Blocks."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from quivermq.clock import SteadyClock
from quivermq.disk import Buffer
from quivermq.engine import Engine
from quivermq.engine.archived import EVERYTHING
from quivermq.engine.lane_view import LaneView
from quivermq.frame import Wanted
from quivermq.model.json import Document, stored_message_json

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


def making_bytes(engine: Engine, topic: str, limit: int, copies: int) -> int:
    """About how much memory it takes to make an answer of up to so many messages of a topic.

    `copies` is how often each of them is there then: read, taken apart, put into words, put together.
    """
    average = (engine.inspection.average_bytes(topic) or 1) + FIELDS_BYTES
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
    lane: LaneView, offset: int, limit: int, clock: SteadyClock, wanted: Wanted = EVERYTHING
) -> tuple[list[Document], int]:
    """Up to `limit` messages, fewer when they are large, and the offset to go on with.

    Whoever looks for something gets an answer after a while in any case. Raises OffsetOutOfRange.
    """
    found, size, reading = list[Document](), 0, lane.read(offset)
    patience = SearchTime(clock) if wanted else None
    for frame in reading:
        for record in frame.records(offset, wanted):
            found.append(stored_message_json(record, lane.topic, lane.partition, lane.priority))
            size += len(record.value) + FIELDS_BYTES
            if len(found) >= limit or size >= ANSWER_BYTES:
                return found, record.offset + 1
        if patience is not None and patience.is_over(frame.header.raw_bytes):
            return found, max(offset, frame.header.end_offset)
    return found, reading.reached


def read_frames(lane: LaneView, offset: int, limit: int) -> tuple[list[Buffer], int]:
    """Whole frames of about `limit` messages, fewer when they are large, and the offset to go on with.

    Raises OffsetOutOfRange.
    """
    buffers, size, reading = list[Buffer](), 0, lane.read(offset)
    for frame in reading:
        header = frame.header
        buffers += frame.buffers()
        size += header.frame_bytes
        if header.end_offset - offset >= limit or size >= ANSWER_BYTES:
            return buffers, max(offset, header.end_offset)
    return buffers, reading.reached
