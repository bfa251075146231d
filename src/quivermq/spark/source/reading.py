"""The batch reader: plans tasks on the driver, reads them in executors."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from quivermq.spark.options import Options
from quivermq.spark.source.columns import Columns
from quivermq.spark.source.narrowing import Narrowing
from quivermq.spark.source.plan import Range, rows_of, tasks_by_size
from quivermq.spark.source.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """What one task reads, in this order."""

    def __init__(self, ranges: list[Range]) -> None:
        self.value = ranges


class _Pushing:
    """Makes `pushFilters` a method that Spark also takes while it does not push filters.

    A reader that has its own is refused then, though it would never be asked. So the method says that it is
    the inherited one, which is what Spark looks at, and does more when it is called.
    """

    def __get__(self, reader: "BatchReader | None", _: type) -> Any:
        if reader is None:
            return DataSourceReader.pushFilters
        return _Pushed(reader)


class _Pushed:
    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: "BatchReader") -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._reader.narrow(filters)
        return filters


class BatchReader(DataSourceReader):
    """Reads the ranges of a snapshot."""

    pushFilters = _Pushing()  # noqa: N815  (Spark's name.)

    def __init__(self, options: Options, schema: StructType, snapshot: Snapshot) -> None:
        self._place = options.whole_place()
        self._fails = options.flag("failOnDataLoss", default=True)
        self._tasks_min = options.number("minPartitions")
        self._columns = Columns.of(schema)
        self._snapshot = snapshot
        self._narrows = options.flag("filterPushdown", default=False)
        self._narrowing = Narrowing()

    def narrow(self, filters: list[Filter]) -> None:
        """Read only what can pass, if the user allows it.

        Spark 4.3 keeps the tasks that were planned with the filters of one query for all other uses of the
        same DataFrame, also in the same query: rows would be missing there, and nobody would be told.
        """
        if self._narrows:
            self._narrowing.take(filters)

    def partitions(self) -> list[InputPartition]:
        ranges = self._snapshot.ranges(self._place, self._narrowing, fails=self._fails)
        return [Task(ranges) for ranges in tasks_by_size(ranges, self._tasks_min)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        # Spark wants one partition also where there is nothing to read: that one has no ranges.
        for part in partition.value or ():
            batches = rows_of(
                self._place,
                part,
                self._columns.names,
                fail_on_data_loss=self._fails,
                wanted=self._narrowing.wanted(),
            )
            yield from map(self._columns.shaped, batches)
