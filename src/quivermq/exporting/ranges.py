"""Which offsets of which lanes are meant, fixed once: what comes in meanwhile is not exported."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from quivermq.errors import InvalidRequest
from quivermq.frame import OFFSET_MAX
from quivermq.spark.place import Lane, LaneBounds, Place, TopicView
from quivermq.spark.source.plan import ALL_TIMES, TimeRange
from quivermq.topic.partition import lane_number

# An offset, a moment with a time zone, or None for as far as it goes.
Bound = int | datetime | None

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Part:
    """Offsets of a lane, half-open."""

    lane: Lane
    start: int
    end: int
    created_us: int
    """Which topic of that name is meant."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks for. Raises InvalidRequest for what nobody can mean."""

    start: Bound = None
    end: Bound = None
    partition: int | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        for bound in (self.start, self.end):
            _check(bound)
        if self.priority is not None:
            lane_number(self.priority)
        if type(self.start) is type(self.end) and self.start is not None and self.start > self.end:  # type: ignore[operator]
            raise InvalidRequest(f"the range ends at {self.end}, before it begins at {self.start}")

    @property
    def times(self) -> TimeRange:
        since = _microseconds(self.start) if isinstance(self.start, datetime) else ALL_TIMES.since_us
        until = _microseconds(self.end) if isinstance(self.end, datetime) else ALL_TIMES.until_us
        return TimeRange(since, until)

    def parts(self, place: Place, topic: str) -> list[Part]:
        """The ranges in order of partition and priority. Raises TopicNotFound, InvalidRequest."""
        view = place.look(topic)
        self._check_partition(view)
        return [
            Part(lane, *self._offsets(place, lane, bounds), view.created_us)
            for lane, bounds in view.lanes.items()
            if self.partition in (None, lane.partition) and self.priority in (None, lane.priority)
        ]

    def _check_partition(self, view: TopicView) -> None:
        partitions = view.settings.partitions
        if self.partition is not None and not 0 <= self.partition < partitions:
            raise InvalidRequest(f"there is no partition {self.partition}: the topic has {partitions}")

    def _offsets(self, place: Place, lane: Lane, bounds: LaneBounds) -> tuple[int, int]:
        """What there is of it: offsets that are gone, or yet to come, are not there."""
        start, end = bounds.start, bounds.end
        if isinstance(self.start, int):
            start = min(max(start, self.start), end)
        elif self.start is not None and start < end:
            start = min(place.find_time(lane, self.times.since_us), end)
        if isinstance(self.end, int):
            end = max(start, min(end, self.end))
        return start, end


def _check(bound: Bound) -> None:
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise InvalidRequest(f"{bound} has no time zone: give it one, as datetime.UTC")
    elif bound is not None and (type(bound) is not int or not 0 <= bound <= OFFSET_MAX):
        raise InvalidRequest(f"a range is between offsets from 0 on, or moments, not {bound!r}")


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
