"""How far a stream may go: what there is, what was asked for, and what is missing."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quivermq.clock import Clock, SystemClock
from quivermq.errors import (
    Conflict,
    Corruption,
    InvalidRequest,
    OffsetOutOfRange,
    QuiverError,
    TopicNotFound,
)
from quivermq.model.lanes import Lane, Priority, lane_number
from quivermq.model.names import NO_ORIGINS
from quivermq.model.operations import NOTHING, LaneBounds, TopicExtent
from quivermq.reading.reader import MessageReader
from quivermq.reading.rows import gone
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.snapshot import Positions
from quivermq.spark.subscription import TopicSelection


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The next offset of each lane of one topic."""

    created_us: int
    lanes: dict[Lane, int] = field(default_factory=dict)
    begins: dict[Lane, int] = field(default_factory=dict)
    appended_us: dict[Lane, int] = field(default_factory=dict)

    def is_unread(self, lane: Lane) -> bool:
        """Whether nothing was read yet of a lane that is there."""
        return lane in self.begins and self.begins[lane] == self.lanes.get(lane)


StreamOffsets = dict[str, TopicOffsets]


def to_json(offsets: StreamOffsets) -> dict[str, Any]:
    """What Spark keeps."""
    return {topic: _topic_json(offsets[topic]) for topic in sorted(offsets)}


def _topic_json(offsets: TopicOffsets) -> dict[str, Any]:
    kept = {"created_us": offsets.created_us, "partitions": _by_partition(offsets.lanes)}
    more = {"begins": offsets.begins, "appended_us": offsets.appended_us}
    return kept | {name: _by_partition(lanes) for name, lanes in more.items() if lanes}


def _by_partition(lanes: Mapping[Lane, int]) -> dict[str, dict[str, int]]:
    partitions: dict[str, dict[str, int]] = {}
    for lane in sorted(lanes, key=lambda lane: (lane.partition, lane_number(lane.priority))):
        partitions.setdefault(str(lane.partition), {})[lane.priority] = lanes[lane]
    return partitions


def from_json(document: Mapping[str, Any]) -> StreamOffsets:
    """What Spark kept. Raises InvalidRequest for what this source has not written."""
    try:
        return {
            topic: TopicOffsets(
                kept["created_us"],
                _lanes(topic, kept["partitions"]),
                _lanes(topic, kept.get("begins", {})),
                _lanes(topic, kept.get("appended_us", {})),
            )
            for topic, kept in document.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidRequest(
            "the checkpoint is not one of the source quiver, or of a later release:"
            " use a new checkpointLocation"
        ) from None


def _lanes(topic: str, partitions: Mapping[str, Mapping[Priority, int]]) -> dict[Lane, int]:
    return {
        Lane(topic, int(partition), priority): int(offset)
        for partition, lanes in partitions.items()
        for priority, offset in lanes.items()
    }


def begin_of(start: StreamOffsets, topic: str, end: TopicOffsets, lane: Lane) -> int:
    """Where a batch that ends at `end` begins in a lane: decided by what the checkpoint holds alone."""
    begun = start.get(topic)
    if begun is None or begun.created_us != end.created_us or lane not in begun.lanes:
        return end.begins.get(lane, 0)
    # Of a lane of which nothing was read the start may be a fresh answer to an old question.
    return end.begins.get(lane, begun.lanes[lane]) if begun.is_unread(lane) else begun.lanes[lane]


def shared(lags: Mapping[Lane, int], rows_max: int) -> dict[Lane, int]:
    """How much of its lag each lane may read: in proportion, and together `rows_max`."""
    total = sum(lags.values())
    if total <= rows_max:
        return dict(lags)
    shares = {lane: lag * rows_max // total for lane, lag in lags.items()}
    left = rows_max - sum(shares.values())
    # What rounding left over goes to those that would wait the longest for their turn.
    for lane in sorted(lags, key=lambda lane: (shares[lane], lags[lane], lane)):
        if left and shares[lane] < lags[lane]:
            shares[lane] += 1
            left -= 1
    return shares


_DELAY_US = 15 * 60 * 1_000_000


class BatchDelay:
    """Waits for `minOffsetsPerTrigger` offsets, but for no longer than `maxTriggerDelay`."""

    def __init__(self, rows_min: int | None, delay_us: int, clock: Clock) -> None:
        self._rows_min = rows_min
        self._delay_us = delay_us
        self._clock = clock
        self._begun_us: int | None = None

    @classmethod
    def of(cls, options: SourceOptions, clock: Clock | None = None) -> "BatchDelay":
        """What the options say. Raises InvalidRequest."""
        rows_min, rows_max = options.number("minOffsetsPerTrigger"), options.number("maxOffsetsPerTrigger")
        delay_us = options.duration_us("maxTriggerDelay")
        if rows_min is not None and rows_max is not None and rows_min > rows_max:
            raise InvalidRequest("`minOffsetsPerTrigger` is more than `maxOffsetsPerTrigger`")
        if delay_us is not None and rows_min is None:
            raise InvalidRequest("`maxTriggerDelay` is for `minOffsetsPerTrigger`: give that, too")
        return cls(rows_min, _DELAY_US if delay_us is None else delay_us, clock or SystemClock())

    def waits(self, rows: int) -> bool:
        """Whether so many are too few to begin with now."""
        if self._rows_min is None:
            return False
        now_us = self._clock.now_us()
        is_time = self._begun_us is None or now_us - self._begun_us >= self._delay_us
        if rows < self._rows_min and not is_time:
            return True
        self._begun_us = now_us
        return False


def appended_us(reader: MessageReader, lane: Lane, offset: int) -> int | None:
    """When the message before an offset came into its log; None where that cannot be told.

    A frame may be divided, lose messages or be archived, and keeps this time.
    """
    last = offset - 1
    if last < 0:
        return None
    try:
        frame = next(iter(reader.frames(lane, last, offset)), None)
    except (OffsetOutOfRange, Corruption, TopicNotFound):
        return None  # Whoever reads there is told; here nothing is to be read.
    # A repair or a compaction may have left nothing there, and a broker shows nothing of what was removed.
    if frame is None or frame.is_control:
        return None
    header = frame.header
    return header.append_time if header.base_offset <= last < header.end_offset else None


def replaced(lane: Lane, offset: int, came_us: int, found_us: int) -> Conflict:
    """The error of a log that has other messages than those which were read."""
    return Conflict(
        f"{lane}: the message before offset {offset} was read as one that came in at {came_us} µs, and now"
        f" there is one that came in at {found_us} µs: the log lost its end and grew again, and new"
        " messages below that offset were not read; start with a new checkpoint, or set the option"
        " failOnDataLoss to false to go on without them"
    )


logger = logging.getLogger(__name__)

_Views = dict[str, TopicExtent]


class Frontier:
    """Looks at the topics of a stream, and says where its next batch ends.

    Topics, partitions and lanes that come to be while the query runs are read from their beginning. Topics
    of the checkpoint that are not subscribed to stay where they are: one that is subscribed to again later
    goes on there.
    """

    def __init__(self, options: SourceOptions, reader: MessageReader, clock: Clock | None = None) -> None:
        self._reader = reader
        self._subscription = TopicSelection.of(options)
        self._starting = Positions.of(options, "starting", default="latest", unnamed="earliest")
        self._ending = Positions.of(options, "ending", default="latest", unnamed="latest")
        self._ending.refuse("earliest", "a stream that ends there has nothing to read")
        self._fails = options.flag("failOnDataLoss", default=True)
        self._patience = BatchDelay.of(options, clock)
        # Where the last look saw each lane end.
        self.latest: StreamOffsets | None = None
        # Where this run ends, once it is known that it does.
        self._last: StreamOffsets | None = None
        # Where the options say that a lane ends, once there is something behind it.
        self._limits: dict[Lane, int] = {}

    def first(self) -> StreamOffsets:
        """Where a query without a checkpoint begins. Raises OffsetOutOfRange, InvalidRequest."""
        views = self._look()
        lanes = [lane for view in views.values() for lane in view.lanes]
        self._subscription.check_partitions(lanes)
        self._starting.check_known(lanes)
        return {topic: self._begun(view) for topic, view in views.items()}

    def _begun(self, view: TopicExtent) -> TopicOffsets:
        lanes = {lane: self._first_of(lane, bounds) for lane, bounds in view.lanes.items()}
        return TopicOffsets(view.created_us, lanes, dict(lanes), self._identities(lanes))

    def stop_here(self) -> None:
        """Let what there is now be all that there is."""
        self._last = _ends(self._look())

    def next(self, start: StreamOffsets, rows_max: int | None) -> StreamOffsets:
        """Where a batch ends that begins at `start`. Raises OffsetOutOfRange, TopicNotFound, Conflict."""
        views = self._look()
        self.latest = _ends(views)
        self._check_topics(start, views)
        standing = {topic: self._standing(start.get(topic), view) for topic, view in views.items()}
        lags = {
            lane: self._lag(lane, at, views[topic])
            for topic, each in standing.items()
            for lane, at in each.lanes.items()
        }
        # A run that ends where it was told to waits for nothing.
        if self._last is None and self._patience.waits(sum(lags.values())):
            return start
        rows = lags if rows_max is None else shared(lags, rows_max)
        advanced = {topic: self._advanced(each, rows) for topic, each in standing.items()}
        left = start.keys() - self.subscribed(start).keys()
        end = {topic: start[topic] for topic in left} | advanced
        # Spark takes any other text for something to read.
        return start if _places(end) == _places(start) else end

    def subscribed(self, offsets: StreamOffsets) -> StreamOffsets:
        """What a checkpoint tells of the topics that are read now."""
        return {topic: offsets[topic] for topic in self._subscription.topics(offsets)}

    def _advanced(self, standing: TopicOffsets, rows: Mapping[Lane, int]) -> TopicOffsets:
        """Where the lanes of a topic are so many rows later."""
        lanes = {lane: at + rows[lane] for lane, at in standing.lanes.items()}
        moved = {lane: at for lane, at in lanes.items() if at != standing.lanes[lane]}
        kept = {lane: us for lane, us in standing.appended_us.items() if lane not in moved}
        return TopicOffsets(standing.created_us, lanes, standing.begins, kept | self._identities(moved))

    def _identities(self, lanes: Mapping[Lane, int]) -> dict[Lane, int]:
        """When the last message before each offset came in, of those of which that can be told."""
        found = {lane: appended_us(self._reader, lane, at) for lane, at in lanes.items()}
        return {lane: us for lane, us in found.items() if us is not None}

    def _standing(self, known: TopicOffsets | None, view: TopicExtent) -> TopicOffsets:
        """Where each lane of a topic is read on: where it was left, or at its beginning."""
        if known is None or known.created_us != view.created_us:
            known = TopicOffsets(view.created_us)
        lanes, came = dict(known.lanes), dict(known.appended_us)
        begins = {lane: at for lane, at in known.begins.items() if known.is_unread(lane)}
        for lane, bounds in view.lanes.items():
            if lane not in lanes:
                if self._is_too_late(lane, view.created_us):
                    continue
                lanes[lane] = begins[lane] = bounds.start
            elif not bounds.start <= lanes[lane] <= bounds.end:
                self._tell_lost(lane, lanes[lane], bounds)
                lanes[lane] = min(max(lanes[lane], bounds.start), bounds.end)
                came.pop(lane, None)
            elif lane in came and lanes[lane] < bounds.end:
                self._check_same(lane, lanes[lane], came[lane])
        return TopicOffsets(view.created_us, lanes, begins, came)

    def _check_same(self, lane: Lane, at: int, came_us: int) -> None:
        """Tell when a log that grew on has other messages where it was read already."""
        found_us = appended_us(self._reader, lane, at)
        if found_us is not None and found_us != came_us:
            self._tell(replaced(lane, at, came_us, found_us))

    def _is_too_late(self, lane: Lane, created_us: int) -> bool:
        """Whether a lane came after the run was told where to end."""
        if self._last is None:
            return False
        last = self._last.get(lane.topic)
        return last is None or last.created_us != created_us or lane not in last.lanes

    def _lag(self, lane: Lane, at: int, view: TopicExtent) -> int:
        """How many offsets a lane may go on."""
        if lane not in view.lanes or self._is_too_late(lane, view.created_us):
            return 0
        if view.lanes[lane].end <= at:
            return 0  # Before anything is asked: most looks find nothing new.
        end = self._end_of(lane, view.lanes[lane])
        if self._last is not None:
            end = min(end, self._last[lane.topic].lanes[lane])
        return max(0, end - at)

    def _end_of(self, lane: Lane, bounds: LaneBounds) -> int:
        if lane not in self._limits:
            limit = self._ending.resolve(self._reader, lane, bounds)
            if self._ending.is_word(lane) or limit >= bounds.end:
                return bounds.end  # Nothing lies behind it yet; for a moment that may change.
            self._limits[lane] = limit
        return min(bounds.end, self._limits[lane])

    def _first_of(self, lane: Lane, bounds: LaneBounds) -> int:
        offset = self._starting.resolve(self._reader, lane, bounds)
        if bounds.start <= offset <= bounds.end:
            return offset
        self._tell_lost(lane, offset, bounds)
        return min(max(offset, bounds.start), bounds.end)

    def _look(self) -> _Views:
        origins = self._reader.origins() if self._subscription.is_open else NO_ORIGINS
        views: _Views = {}
        for topic in self._subscription.topics(origins or self._subscription.names, origins):
            try:
                views[topic] = self._subscription.lanes_of(self._reader.look(topic))
            except TopicNotFound:
                continue  # It is yet to come, or was deleted a moment ago.
        return views

    def _check_topics(self, start: StreamOffsets, views: _Views) -> None:
        """Raise TopicNotFound or Conflict for a topic that was read and is gone."""
        for topic in self._subscription.topics(start):
            view = views.get(topic)
            if view is None:
                self._tell(
                    TopicNotFound(
                        f"the topic {topic} was deleted, and what was not read of it is gone: start with a"
                        " new checkpoint, or set the option failOnDataLoss to false to go on without it"
                    )
                )
            elif view.created_us != start[topic].created_us:
                self._tell(
                    Conflict(
                        f"the topic {topic} was deleted and made again, and what was not read before is"
                        " gone: start with a new checkpoint, or set the option failOnDataLoss to false to"
                        " read the new topic from its beginning"
                    )
                )
            else:
                for lane in start[topic].lanes.keys() - view.lanes.keys():
                    self._tell_lost(lane, start[topic].lanes[lane], NOTHING)

    def _tell_lost(self, lane: Lane, at: int, bounds: LaneBounds) -> None:
        held = (bounds.start, bounds.end)
        if at < bounds.start:
            self._tell(gone(lane, at, bounds.start, held=held))
        elif at > bounds.end:
            self._tell(gone(lane, bounds.end, at, held=held, what="were there once and are gone"))

    def _tell(self, error: QuiverError) -> None:
        if self._fails:
            raise error
        logger.warning("%s", error)


def _places(offsets: StreamOffsets) -> dict[str, tuple[int, dict[Lane, int]]]:
    return {topic: (each.created_us, each.lanes) for topic, each in offsets.items()}


def _ends(views: _Views) -> StreamOffsets:
    return {
        topic: TopicOffsets(view.created_us, {lane: bounds.end for lane, bounds in view.lanes.items()})
        for topic, view in views.items()
    }
