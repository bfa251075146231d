"""The columns of messages as Spark sees them, and those of them that a reader was asked for."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quivermq.errors import InvalidRequest, QuiverError
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.frontier import Frontier, StreamOffsets, begin_of, from_json, to_json
from quivermq.spark.source.plan import Range, rows_of, tasks_by_rows, tasks_by_size
from quivermq.spark.source.snapshot import LateShare, Snapshot, rests_of

if TYPE_CHECKING:
    import pyarrow as pa


_DATA_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "priority": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
    "expires_at": TimestampType(),
    "dedup_id": StringType(),
    "append_time": TimestampType(),
    "scheduled_id": StringType(),
}
_TYPES = {name: kind.simpleString() for name, kind in _DATA_TYPES.items()}


def message_schema(*, includes_headers: bool = True) -> StructType:
    """The schema of messages."""
    names = [name for name in _DATA_TYPES if includes_headers or name != "headers"]
    return StructType([StructField(name, _DATA_TYPES[name]) for name in names])


@dataclass(frozen=True)
class MessageColumns:
    """The columns that Spark wants, in its order: all, unless the user gave a schema with fewer."""

    schema: StructType

    @classmethod
    def of(cls, schema: StructType) -> "MessageColumns":
        """Raises InvalidRequest for a column that messages do not have, or have as another type."""
        for field in schema.fields:
            if field.name not in _TYPES:
                raise InvalidRequest(
                    f"messages have no column {field.name}: choose from {', '.join(_TYPES)}"
                )
            if field.dataType.simpleString() != _TYPES[field.name]:
                raise InvalidRequest(
                    f"the column {field.name} is {_TYPES[field.name]}, not {field.dataType.simpleString()}"
                )
        return cls(schema)

    @property
    def names(self) -> list[str]:
        return self.schema.fieldNames()

    @cached_property
    def _arrow(self) -> "pa.Schema":
        return to_arrow_schema(self.schema, timezone="UTC")

    def shaped(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The same columns under the schema that Spark compares them with."""
        return type(batch).from_arrays(batch.columns, schema=self._arrow)


class Task(InputPartition):
    """What one task reads, in this order, and where it looks for what came later."""

    def __init__(self, ranges: list[Range], rest: LateShare | None = None) -> None:
        self.value = ranges
        self.rest = rest


class QuiverBatchReader(DataSourceReader):
    """Reads the ranges of a snapshot or, without one, all that there is whenever it is used."""

    def __init__(self, options: SourceOptions, schema: StructType, pinned: Snapshot | None) -> None:
        self._options = options
        self._place = options.whole_place()
        self._fails = options.flag("failOnDataLoss", default=True)
        self._tasks_min = options.number("minPartitions")
        self._columns = MessageColumns.of(schema)
        self._pinned = pinned

    def partitions(self) -> list[InputPartition]:
        snapshot = self._pinned or Snapshot.take(self._options, self._place)
        ranges = snapshot.ranges(self._place, fails=self._fails)
        tasks = tasks_by_size(ranges, self._tasks_min)
        if self._pinned is not None:
            return [Task(ranges) for ranges in tasks]
        # Spark asks this once for a DataFrame or a view, and then uses it for as long as that is there.
        tasks = tasks or [[]]
        rests = rests_of(snapshot, len(tasks))
        return [Task(ranges, rest) for ranges, rest in zip(tasks, rests, strict=True)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        # Spark wants one partition also where there is nothing to read: that one has no ranges.
        yield from self._rows(partition.value or ())
        rest = getattr(partition, "rest", None)
        if rest is not None:
            yield from self._rows(rest.ranges(self._options, self._place))

    def _rows(self, ranges: Iterable[Range]) -> Iterator["pa.RecordBatch"]:
        for part in ranges:
            batches = rows_of(self._place, part, self._columns.names, fail_on_data_loss=self._fails)
            yield from map(self._columns.shaped, batches)


logger = logging.getLogger(__name__)


class QuiverStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow. The checkpoint and `minPartitions` decide which task reads what."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._place = options.whole_place()
        self._fails = options.flag("failOnDataLoss", default=True)
        self._tasks_min = options.number("minPartitions")
        self._rows_max = options.number("maxOffsetsPerTrigger")
        self._group = options.text("group")
        self._columns = MessageColumns.of(schema)
        self._frontier = Frontier(options, self._place)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (These are Spark's names.)
        return to_json(self._frontier.first())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._rows_max is None else ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._frontier.stop_here()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(self._frontier.next(from_json(start), rows_max))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        latest = self._frontier.latest
        return None if latest is None else to_json(latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = _between(from_json(start), from_json(end))
        return [Task(part) for part in tasks_by_rows(ranges, self._tasks_min)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        for part in partition.value or ():
            batches = rows_of(self._place, part, self._columns.names, fail_on_data_loss=self._fails)
            yield from map(self._columns.shaped, batches)

    def commit(self, end: dict[str, Any]) -> None:
        """Show in a group how far the query has come, if that was asked for. Nothing depends on it."""
        if self._group is None:
            return
        reached = self._frontier.subscribed(from_json(end))
        offsets = {lane: at for topic in reached.values() for lane, at in topic.lanes.items()}
        try:
            if self._place.commit(self._group, offsets):
                return
        except QuiverError as error:
            logger.warning("group %s is not told how far this query has come: %s", self._group, error)
            return
        logger.warning(
            "the option `group` is for reading from a broker: the directory %s belongs to whoever has"
            " it open, and group %s is not told how far this query has come", self._place, self._group,
        )  # fmt: skip
        self._group = None

    def stop(self) -> None:
        self._place.close()


def _between(start: StreamOffsets, end: StreamOffsets) -> Iterator[Range]:
    for topic in sorted(end):
        for lane, offset in sorted(end[topic].lanes.items()):
            yield Range(lane, begin_of(start, topic, end[topic], lane), offset, 0, end[topic].created_us)
