"""A part of some topics, by offset or by time, fixed once: a job that is started again means the same."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.spark.jobs.where import Where
from quivermq.spark.place import Lane
from quivermq.spark.source.archived import with_archive
from quivermq.topic.names import NO_ORIGINS, Pattern, is_pattern, origin_in
from quivermq.topic.partition import LANES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# An offset, a moment with a time zone, or None for as far as it goes.
Bound = int | datetime | None
Offsets = dict[str, dict[str, dict[str, int]]]

_COLUMNS = "topic string, partition int, priority string, offset bigint, timestamp timestamp"


@dataclass(frozen=True, slots=True)
class Ranges:
    """Half-open offsets of every lane, by topic, partition and priority, and moments that bound them.

    The offsets are what has to be read, the moments decide: clocks of producers are not always in order.
    """

    topics: list[str]
    starts: Offsets
    ends: Offsets
    since: str | None = None
    until: str | None = None

    @property
    def messages(self) -> int:
        """How many offsets there are between the starts and the ends."""
        return _total(self.ends) - _total(self.starts)

    def options(self) -> dict[str, str]:
        """As options of the data source."""
        return {
            "subscribe": ",".join(self.topics),
            "startingOffsets": json.dumps(self.starts),
            "endingOffsets": json.dumps(self.ends),
        }

    @property
    def condition(self) -> str:
        """As SQL, the partitions that there were: the data source reads from the start what came later."""
        parts = [f"topic = '{topic}' AND partition < {len(self.ends[topic])}" for topic in self.topics]
        return " OR ".join(f"({part})" for part in parts)

    def cut(self, frame: "DataFrame") -> "DataFrame":
        """The messages of a frame that are in these partitions and lie between the moments."""
        frame = frame.where(self.condition)
        for condition in _conditions(_moment(self.since), _moment(self.until)):
            frame = frame.where(condition)
        return frame

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def find_ranges(
    spark: "SparkSession",
    where: Where,
    topics: Sequence[str],
    start: Bound,
    end: Bound,
    archive: str | None = None,
) -> Ranges:
    """What the topics and their archive hold between two bounds now. Raises TopicNotFound, InvalidRequest.

    `archive` is the option of the data source.
    """
    _check(start, end)
    lanes, names = _lanes(where, topics, archive)
    first, last = _offset(start, 0), _offset(end, None)
    starts = {lane: min(max(bounds[0], first or 0), bounds[1]) for lane, bounds in lanes.items()}
    ends = {
        lane: max(starts[lane], bounds[1] if last is None else min(bounds[1], last))
        for lane, bounds in lanes.items()
    }
    since, until = (bound if isinstance(bound, datetime) else None for bound in (start, end))
    if since is not None or until is not None:
        bounded = Ranges(names, _nested(starts), _nested(ends), _text(since), _text(until))
        found = _by_time(spark, where, bounded, archive)
        starts = {lane: found[lane][0] if lane in found else ends[lane] for lane in lanes}
        ends = {lane: found[lane][1] if lane in found else ends[lane] for lane in lanes}
    return Ranges(names, _nested(starts), _nested(ends), _text(since), _text(until))


def archive_options(archive: str | None) -> dict[str, str]:
    """An archive that was named, as options of the data source."""
    return {} if archive is None else {"archive": archive}


def _by_time(
    spark: "SparkSession", where: Where, ranges: Ranges, archive: str | None
) -> dict[Lane, tuple[int, int]]:
    """The first and the last offset between the moments, in the lanes that have any there."""
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    options = where.options() | ranges.options() | archive_options(archive)
    rows = (
        ranges.cut(spark.read.format("quiver").options(**options).schema(_COLUMNS).load())
        .groupBy("topic", "partition", "priority")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
        .collect()
    )
    return {Lane(row.topic, row.partition, row.priority): (row.first, row.last + 1) for row in rows}


def _lanes(
    where: Where, topics: Sequence[str], archive: str | None
) -> tuple[dict[Lane, tuple[int, int]], list[str]]:
    """All lanes of the topics, in use or not, and the names of the topics."""
    place = with_archive(where.place(), archive)
    try:
        names = named_topics(origins := place.origins(), topics, origins)
        held = {lane: bounds for name in names for lane, bounds in place.lanes(name).items()}
    finally:
        place.close()
    # Also those that nobody has used yet: what comes into them later is none of ours.
    lanes = {Lane(lane.topic, lane.partition, priority): (0, 0) for lane in held for priority in LANES}
    return lanes | {lane: (bounds.start, bounds.end) for lane, bounds in held.items()}, names


def named_topics(
    there: Collection[str], wanted: Sequence[str], origins: Mapping[str, str | None] = NO_ORIGINS
) -> list[str]:
    """The topics that names and patterns stand for. Raises TopicNotFound, InvalidName."""
    found: dict[str, None] = {}
    for text in wanted:
        if is_pattern(text):
            matching = Pattern(text)
            matches = [name for name in there if matching.matches(name, origin_in(origins, name))]
        else:
            matches = [text] if text in there else []
        if not matches:
            raise TopicNotFound(f"there is no topic {text}: topics() lists those there are")
        found |= dict.fromkeys(matches)
    return list(found)


def _check(start: Bound, end: Bound) -> None:
    for bound in (start, end):
        if isinstance(bound, datetime) and bound.tzinfo is None:
            raise InvalidRequest(f"{bound} has no time zone: give it one, as datetime.UTC")
        if isinstance(bound, int) and (isinstance(bound, bool) or bound < 0):
            raise InvalidRequest(f"an offset is a number from 0 on, not {bound}")
    if type(start) is type(end) and start is not None and start > end:  # type: ignore[operator]
        raise InvalidRequest(f"the range ends at {end}, before it starts at {start}")


def _offset(bound: Bound, otherwise: int | None) -> int | None:
    return bound if isinstance(bound, int) else otherwise


def _conditions(since: datetime | None, until: datetime | None) -> "list[Column]":
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    conditions = []
    if since is not None:
        conditions.append(F.col("timestamp") >= F.lit(since))
    if until is not None:
        conditions.append(F.col("timestamp") < F.lit(until))
    return conditions


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _nested(offsets: Mapping[Lane, int]) -> Offsets:
    nested: Offsets = {}
    for lane, offset in offsets.items():
        nested.setdefault(lane.topic, {}).setdefault(str(lane.partition), {})[lane.priority] = offset
    return nested


def _total(offsets: Offsets) -> int:
    return sum(each for topic in offsets.values() for lanes in topic.values() for each in lanes.values())
