"""Parts of a log as answers: messages, or frames as they are stored. Blocks; nothing here is changed.

What was taken out of a partition for everybody, such as a dead letter that went back, is not shown. A
frame that has such messages comes as frames of those that are left, each at its place; all others come as
they are, and with them what compaction has emptied, which its readers know by when it expired.
"""

from collections.abc import Iterator
from itertools import count, groupby
from typing import NamedTuple

from quivermq.disk import Buffer
from quivermq.engine import Engine
from quivermq.engine.archived import EVERYTHING, Seam
from quivermq.frame import ANONYMOUS, Frame, Header, Producer, Wanted, encode_records
from quivermq.log import Log
from quivermq.server.answers import ANSWER_BYTES, FIELDS_BYTES, Patience
from quivermq.server.messages_json import MessageOut, record_to_json
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.partition import LANES, Partition


class Lane(NamedTuple):
    """One lane of a partition, whether anybody has used it yet or not."""

    partition: Partition
    number: int
    engine: Engine

    @property
    def log(self) -> Log | None:
        return self.partition.logs[self.number]

    @property
    def removed(self) -> OffsetSet:
        return self.partition.removals.lanes[self.number]

    @property
    def start(self) -> int:
        return 0 if self.log is None else self.log.start

    @property
    def end(self) -> int:
        return 0 if self.log is None else self.log.end

    @property
    def has_archive(self) -> bool:
        """Whether some of it may lie elsewhere."""
        return self.engine.archive.is_named

    def find_first(self) -> int:
        """The first offset that can be read, the archived ones included."""
        return self.seam.start if self.has_archive else self.start

    def told_start(self) -> int:
        """The same for showing it, which needs no fresh look at the archive."""
        return self.seam.told_start if self.has_archive else self.start

    def find_time(self, timestamp_us: int) -> int:
        """The first offset whose message is not older."""
        if self.has_archive:
            return self.seam.find_time(timestamp_us)
        return 0 if self.log is None else self.log.find_time(timestamp_us)

    @property
    def seam(self) -> Seam:
        """Archived and live offsets as one log, for one look."""
        return self.engine.seam(self.partition.topic, self.partition, self.number)


class Messages(NamedTuple):
    """Messages, and the offset to go on with."""

    messages: list[MessageOut]
    next: int


class Frames(NamedTuple):
    """The bytes of frames, and the offset to go on with."""

    buffers: list[Buffer]
    next: int


def read_messages(lane: Lane, offset: int, limit: int, wanted: Wanted = EVERYTHING) -> Messages:
    """Up to `limit` messages, fewer when they are large. Raises OffsetOutOfRange.

    Whoever looks for something gets an answer after a while in any case, with where to go on.
    """
    topic, number, priority = lane.partition.topic, lane.partition.number, LANES[lane.number]
    removed, found, size, seam = lane.removed, [], 0, lane.seam
    patience = Patience(lane.engine.clock) if wanted else None
    for frame in seam.frames(offset):
        for record in wanted.records(frame, offset):
            if record.offset < offset or record.offset in removed:
                continue
            found.append(record_to_json(record, topic, number, priority))
            size += len(record.value) + FIELDS_BYTES
            if len(found) >= limit or size >= ANSWER_BYTES:
                return Messages(found, record.offset + 1)
        if patience is not None and patience.is_over(frame.header.raw_bytes):
            return Messages(found, max(offset, frame.header.end_offset))
    return Messages(found, seam.reached)


def read_frames(lane: Lane, offset: int, limit: int) -> Frames:
    """Whole frames of about `limit` messages, fewer when they are large. Raises OffsetOutOfRange."""
    removed, buffers, size, seam = lane.removed, list[Buffer](), 0, lane.seam
    for frame in seam.frames(offset):
        header = frame.header
        buffers += _left_of(frame, removed) if removed and _is_touched(frame, removed) else frame.buffers()
        size += header.frame_bytes
        if header.end_offset - offset >= limit or size >= ANSWER_BYTES:
            return Frames(buffers, max(offset, header.end_offset))
    # Where nothing is left there is no frame, and whoever reads on has to get behind it.
    return Frames(buffers, seam.reached)


def _is_touched(frame: Frame, removed: OffsetSet) -> bool:
    return any(offset in removed for offset in range(frame.header.base_offset, frame.header.end_offset))


def _left_of(frame: Frame, removed: OffsetSet) -> Iterator[Buffer]:
    """What was not taken out, as a frame for each run of offsets, from the same producer."""
    left = [record for record in frame.records() if record.offset not in removed]
    places = count()
    for _, run in groupby(left, key=lambda record: record.offset - next(places)):
        records = list(run)
        producer = _producer_at(frame.header, records[0].offset)
        yield from encode_records(records, frame.header.append_time, producer, frame.header.flags).buffers()


def _producer_at(header: Header, offset: int) -> Producer:
    """Who sent the message of an offset, and its sequence."""
    if not header.producer_id:
        return ANONYMOUS
    sequence = (header.base_sequence + offset - header.base_offset) % 2**32
    return Producer(header.producer_id, header.producer_epoch, sequence)
