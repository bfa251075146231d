"""What Spark's filters say about topics, lanes, offsets and times, so that the rest is not even read.

Nothing here decides about a row: every filter stays Spark's to apply. So whatever is not understood is
simply not used, and a range may be wider than the filter.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from quivermq.frame import Header
from quivermq.spark.place import Lane

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WIDEST = 2**63 - 1


@dataclass(slots=True)
class Span:
    """Whole numbers from `lowest` to `highest`, both included."""

    lowest: int = -_WIDEST
    highest: int = _WIDEST

    def narrow(self, lowest: int = -_WIDEST, highest: int = _WIDEST) -> None:
        self.lowest, self.highest = max(self.lowest, lowest), min(self.highest, highest)

    @property
    def is_all(self) -> bool:
        return self == Span()

    @property
    def is_bounded_below(self) -> bool:
        return self.lowest > -_WIDEST


@dataclass(slots=True)
class Narrowing:
    """What is left to read once the filters have been looked at. Can be pickled."""

    topics: set[str] | None = None
    topic_prefixes: list[str] = field(default_factory=list)
    priorities: set[str] | None = None
    partition: Span = field(default_factory=Span)
    offset: Span = field(default_factory=Span)
    timestamp_us: Span = field(default_factory=Span)

    def take(self, filters: Iterable[Filter]) -> None:
        """Use of each filter what can be used."""
        for each in filters:
            path: tuple[str, ...] = getattr(each, "attribute", ())
            if len(path) == 1:
                self._take(path[0], each)

    def keeps(self, lane: Lane) -> bool:
        """Whether a message of this lane can pass."""
        return (
            (self.topics is None or lane.topic in self.topics)
            and all(map(lane.topic.startswith, self.topic_prefixes))
            and (self.priorities is None or lane.priority in self.priorities)
            and self.partition.lowest <= lane.partition <= self.partition.highest
        )

    def wanted(self) -> Callable[[Header], bool] | None:
        """Tells of a frame, by the times in its header, whether one of its messages can pass."""
        if self.timestamp_us.is_all:
            return None
        lowest, highest = self.timestamp_us.lowest, self.timestamp_us.highest
        return lambda header: header.timestamp_max >= lowest and header.timestamp_min <= highest

    def _take(self, column: str, given: Filter) -> None:
        if column in ("topic", "priority"):
            self._take_text(column, given)
        elif column in ("partition", "offset"):
            _narrow(getattr(self, column), given, _number)
        elif column == "timestamp":
            _narrow(self.timestamp_us, given, _microseconds)

    def _take_text(self, column: str, given: Filter) -> None:
        if isinstance(given, StringStartsWith) and column == "topic":
            self.topic_prefixes.append(given.value)
        elif isinstance(given, EqualTo | EqualNullSafe | In):
            name = "topics" if column == "topic" else "priorities"
            known = getattr(self, name)
            found = {text for text in _values(given) if isinstance(text, str)}
            setattr(self, name, found if known is None else known & found)


def _values(given: EqualTo | EqualNullSafe | In) -> Iterable[Any]:
    return given.value if isinstance(given, In) else (given.value,)


def _narrow(span: Span, given: Filter, number: Callable[[Any], int | None]) -> None:
    if isinstance(given, EqualTo | EqualNullSafe | In):
        # A null among them equals nothing, so it leaves nothing in.
        numbers = [number(value) for value in _values(given) if value is not None]
        if numbers and None not in numbers:
            known = [n for n in numbers if n is not None]
            span.narrow(min(known), max(known))
        return
    if not isinstance(given, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return
    value = number(given.value)
    if value is None:
        return
    if isinstance(given, GreaterThan):
        span.narrow(lowest=value + 1)
    elif isinstance(given, GreaterThanOrEqual):
        span.narrow(lowest=value)
    elif isinstance(given, LessThan):
        span.narrow(highest=value - 1)
    else:
        span.narrow(highest=value)


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    """A time with a zone; one without means another moment in each session and is not used."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
