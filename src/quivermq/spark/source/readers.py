"""What Spark calls to read messages, as a batch and as a stream."""

import logging
from collections.abc import Iterable, Iterator
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
from quivermq.reading.rows import Range, rows_of
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.frontier import Frontier, StreamOffsets, begin_of, from_json, to_json
from quivermq.spark.source.plan import tasks_by_rows, tasks_by_size
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


class MessageRows:
    """Reads ranges as the columns that Spark wants: all, unless the user gave a schema with fewer.

    Raises InvalidRequest for a column that messages do not have, or have as another type.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        for field in schema.fields:
            if field.name not in _TYPES:
                raise InvalidRequest(
                    f"messages have no column {field.name}: choose from {', '.join(_TYPES)}"
                )
            if field.dataType.simpleString() != _TYPES[field.name]:
                raise InvalidRequest(
                    f"the column {field.name} is {_TYPES[field.name]}, not {field.dataType.simpleString()}"
                )
        self.reader = options.message_reader()
        self.fails = options.flag("failOnDataLoss", default=True)
        self.tasks_min = options.number("minPartitions")
        self._schema = schema

    def read(self, ranges: Iterable[Range]) -> Iterator["pa.RecordBatch"]:
        # The same columns under the schema that Spark compares them with.
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        for part in ranges:
            names = self._schema.fieldNames()
            for batch in rows_of(self.reader, part, names, fail_on_data_loss=self.fails):
                yield type(batch).from_arrays(batch.columns, schema=arrow)


class Task(InputPartition):
    """What one task reads, in this order, and where it looks for what came later."""

    def __init__(self, ranges: list[Range], rest: LateShare | None = None) -> None:
        self.value = ranges
        self.rest = rest


class QuiverBatchReader(DataSourceReader):
    """Reads the ranges of a snapshot or, without one, all that there is whenever it is used."""

    def __init__(self, options: SourceOptions, schema: StructType, pinned: Snapshot | None) -> None:
        self._options = options
        self._rows = MessageRows(options, schema)
        self._pinned = pinned

    def partitions(self) -> list[InputPartition]:
        rows = self._rows
        snapshot = self._pinned or Snapshot.take(self._options, rows.reader)
        tasks = tasks_by_size(snapshot.ranges(rows.reader, fails=rows.fails), rows.tasks_min)
        if self._pinned is not None:
            return [Task(ranges) for ranges in tasks]
        # Spark asks this once for a DataFrame or a view, and then uses it for as long as that is there.
        tasks = tasks or [[]]
        rests = rests_of(snapshot, len(tasks))
        return [Task(ranges, rest) for ranges, rest in zip(tasks, rests, strict=True)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        # Spark wants one partition also where there is nothing to read: that one has no ranges.
        yield from self._rows.read(partition.value or ())
        rest = getattr(partition, "rest", None)
        if rest is not None:
            yield from self._rows.read(rest.ranges(self._options, self._rows.reader))


logger = logging.getLogger(__name__)


class QuiverStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow. The checkpoint and `minPartitions` decide which task reads what."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._rows = MessageRows(options, schema)
        self._rows_max = options.number("maxOffsetsPerTrigger")
        self._group = options.text("group")
        self._frontier = Frontier(options, self._rows.reader)

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
        return [Task(part) for part in tasks_by_rows(ranges, self._rows.tasks_min)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return self._rows.read(partition.value or ())

    def commit(self, end: dict[str, Any]) -> None:
        """Show in a group how far the query has come, if that was asked for. Nothing depends on it."""
        if self._group is None:
            return
        reached = self._frontier.subscribed(from_json(end))
        offsets = {lane: at for topic in reached.values() for lane, at in topic.lanes.items()}
        try:
            if self._rows.reader.commit(self._group, offsets):
                return
        except QuiverError as error:
            logger.warning("group %s is not told how far this query has come: %s", self._group, error)
            return
        logger.warning(
            "the option `group` is for reading from a broker: the directory %s belongs to whoever has"
            " it open, and group %s is not told how far this query has come",
            self._rows.reader,
            self._group,
        )
        self._group = None

    def stop(self) -> None:
        self._rows.reader.close()


def _between(start: StreamOffsets, end: StreamOffsets) -> Iterator[Range]:
    for topic in sorted(end):
        for lane, offset in sorted(end[topic].lanes.items()):
            yield Range(lane, begin_of(start, topic, end[topic], lane), offset, 0, end[topic].created_us)
