"""One lane of a partition as its readers see it, from the archive to its end.

What was taken out of a partition for everybody, such as a dead letter that went back, is not shown. A
frame that has such messages comes as frames of those that are left, each at its place; all others come as
they are, and with them what compaction has emptied, which its readers know by when it expired.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count, groupby
from typing import TYPE_CHECKING, NamedTuple

from quivermq.disk import Buffer
from quivermq.engine.archived import Seam
from quivermq.engine.open_topic import OpenTopic
from quivermq.frame import ANONYMOUS, Frame, Header, Producer, Wanted, encode_records
from quivermq.log import Log
from quivermq.model.checks import check_partition
from quivermq.model.lanes import lane_number
from quivermq.model.messages import Record
from quivermq.topic.offsets import OffsetSet

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine


class LaneView:
    """One lane of a partition, whether anybody has used it yet or not."""

    def __init__(self, engine: "Engine", topic: OpenTopic, partition: int, priority: str) -> None:
        self.topic = topic.name
        self.partition = partition
        self.priority = priority
        self._engine = engine
        self._open_topic = topic
        check_partition(partition, topic.settings)
        self._owner = topic.topic.partitions[partition]
        self._lane = lane_number(priority)

    @property
    def _log(self) -> Log | None:
        return self._owner.logs[self._lane]

    @property
    def start(self) -> int:
        return 0 if self._log is None else self._log.start

    @property
    def end(self) -> int:
        return 0 if self._log is None else self._log.end

    @property
    def is_gone(self) -> bool:
        """Whether the topic was deleted meanwhile."""
        return self._open_topic.is_gone

    @property
    def has_archive(self) -> bool:
        """Whether some of it may lie elsewhere."""
        return self._engine.archive.is_named

    def _seam(self) -> Seam:
        """Archived and live offsets as one log, for one look."""
        return self._engine.seam(self.topic, self._owner, self._lane)

    def find_first(self) -> int:
        """The first offset that can be read, the archived ones included."""
        return self._seam().start if self.has_archive else self.start

    def known_start(self) -> int:
        """The same for showing it, which needs no fresh look at the archive."""
        return self._seam().known_start if self.has_archive else self.start

    def find_time(self, timestamp_us: int) -> int:
        """The first offset whose message is not older."""
        if self.has_archive:
            return self._seam().find_time(timestamp_us)
        return 0 if self._log is None else self._log.find_time(timestamp_us)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` once, from whatever thread, when there may be more. Returns what ends the wait."""
        return self._open_topic.readers.watch(wake)

    def read(self, offset: int) -> "LaneReading":
        """The frames from an offset on, one by one. Raises OffsetOutOfRange when they are read."""
        return LaneReading(self._seam(), offset, self._owner.removals.lanes[self._lane])


class LaneReading:
    """One look at a lane: an iterator over its frames."""

    def __init__(self, seam: Seam, offset: int, removed: OffsetSet) -> None:
        self._seam = seam
        self._offset = offset
        self._removed = removed

    def __iter__(self) -> Iterator["LaneFrame"]:
        return (LaneFrame(frame, self._removed) for frame in self._seam.frames(self._offset))

    @property
    def reached(self) -> int:
        """The offset to go on with once all frames were read: where nothing is left there is no frame."""
        return self._seam.reached


class LaneFrame(NamedTuple):
    """A frame of a lane, and what was taken out of it for everybody."""

    frame: Frame
    removed: OffsetSet

    @property
    def header(self) -> Header:
        return self.frame.header

    def records(self, start: int, wanted: Wanted) -> Iterator[Record]:
        """The messages from an offset on that are wanted."""
        for record in wanted.records(self.frame, start):
            if record.offset >= start and record.offset not in self.removed:
                yield record

    def buffers(self) -> Iterable[Buffer]:
        """The frame as it is stored; where messages were taken out, a frame for each run of the others."""
        offsets = range(self.header.base_offset, self.header.end_offset)
        if self.removed and any(offset in self.removed for offset in offsets):
            return self._left()
        return self.frame.buffers()

    def _left(self) -> Iterator[Buffer]:
        left = [record for record in self.frame.records() if record.offset not in self.removed]
        indexes = count()
        for _, run in groupby(left, key=lambda record: record.offset - next(indexes)):
            records = list(run)
            producer = _producer_at(self.header, records[0].offset)
            yield from encode_records(
                records, self.header.append_time, producer, self.header.flags
            ).buffers()


def _producer_at(header: Header, offset: int) -> Producer:
    """Who sent the message of an offset, and its sequence."""
    if not header.producer_id:
        return ANONYMOUS
    sequence = (header.base_sequence + offset - header.base_offset) % 2**32
    return Producer(header.producer_id, header.producer_epoch, sequence)
