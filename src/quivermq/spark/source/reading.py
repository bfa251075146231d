"""The batch reader: plans tasks on the driver, reads them in executors."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quivermq.spark.options import SourceOptions
from quivermq.spark.source.columns import MessageColumns
from quivermq.spark.source.plan import Range, rows_of, tasks_by_size
from quivermq.spark.source.rest import LateShare, rests_of
from quivermq.spark.source.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa


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
