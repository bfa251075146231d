"""The streaming reader: how far to go is decided on the driver, what that means is read in executors."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quivermq.errors import QuiverError
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.archived import live_of
from quivermq.spark.source.columns import MessageColumns
from quivermq.spark.source.frontier import Frontier
from quivermq.spark.source.plan import Range, rows_of, tasks_by_rows
from quivermq.spark.source.reading import Task
from quivermq.spark.source.stream_offsets import StreamOffsets, begin_of, from_json, to_json

if TYPE_CHECKING:
    import pyarrow as pa

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
        from quivermq.spark.broker_place import BrokerPlace

        place = live_of(self._place)
        if not isinstance(place, BrokerPlace):
            logger.warning(
                "the option `group` is for reading from a broker: the directory %s belongs to whoever has"
                " it open, and group %s is not told how far this query has come", self._place, self._group,
            )  # fmt: skip
            self._group = None
            return
        reached = self._frontier.subscribed(from_json(end))
        positions = {lane: at for topic in reached.values() for lane, at in topic.lanes.items()}
        try:
            place.commit(self._group, positions)
        except QuiverError as error:
            logger.warning("group %s is not told how far this query has come: %s", self._group, error)

    def stop(self) -> None:
        self._place.close()


def _between(start: StreamOffsets, end: StreamOffsets) -> Iterator[Range]:
    for topic in sorted(end):
        for lane, offset in sorted(end[topic].lanes.items()):
            yield Range(lane, begin_of(start, topic, end[topic], lane), offset, 0, end[topic].created_us)
