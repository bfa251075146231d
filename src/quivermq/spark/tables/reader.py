"""A table as Spark reads it: a task for each group, lane or topic, each of which yields Arrow batches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from quivermq.errors import TopicNotFound
from quivermq.spark.place import Lane, Place
from quivermq.spark.tables.dead_letters import dead_letter_batches
from quivermq.spark.tables.rows import State, state_of
from quivermq.spark.tables.schemas import arrow_schema

_ROWS_MAX = 65_536


class TablePart(NamedTuple):
    """What one task reads: a topic, and of it a group or a lane."""

    topic: str
    group: str | None = None
    lane: Lane | None = None
    start: int = 0
    end: int = 0


class TablePartition(InputPartition):
    """The same for Spark; without a part, all that the plan does not have."""

    def __init__(self, part: TablePart | None) -> None:
        super().__init__(part)
        self.part = part


class TableReader(DataSourceReader):
    """Reads one table of a place. `is_wanted` says of which topics."""

    def __init__(
        self,
        table: str,
        place: Place,
        is_wanted: Callable[[str], bool],
        columns: Sequence[str] | None = None,
    ) -> None:
        self._table = table
        self._place = place
        self._columns = list(arrow_schema(table).names if columns is None else columns)
        self._is_wanted = is_wanted
        # Listed once, so that a retry of the plan reads the same topics.
        self._parts = list(parts_of(table, place, is_wanted))

    def partitions(self) -> list[InputPartition]:
        # Spark plans a view once, and uses it for long: the last task looks for what came to be since.
        return [*map(TablePartition, self._parts), TablePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePartition):
            return  # Spark reads nothing by reading once, without saying what.
        with closing(self._place):
            parts = self._later() if partition.part is None else [partition.part]
            for part in parts:
                for batch in table_batches(self._table, self._place, part):
                    yield batch.select(self._columns)

    def _later(self) -> Iterator[TablePart]:
        """What is there now and was not when the table was planned."""
        ends = {part.lane: part.end for part in self._parts if part.lane is not None}
        planned = set(self._parts)
        for part in parts_of(self._table, self._place, self._is_wanted):
            start = max(part.start, ends.get(part.lane, 0)) if part.lane is not None else 0
            if part not in planned and start <= part.end:
                yield part._replace(start=start)


def parts_of(table: str, place: Place, is_wanted: Callable[[str], bool]) -> Iterator[TablePart]:
    """The tasks of a table."""
    topics = place.origins()
    if table == "dead_letters":
        # Whoever asks for a topic asks for its dead letters.
        wanted = [
            topic
            for topic, origin in topics.items()
            if origin is not None and (is_wanted(topic) or is_wanted(origin))
        ]
        for topic in wanted:
            for lane, bounds in _lanes(place, topic):
                if bounds[0] < bounds[1]:
                    yield TablePart(topic, lane=lane, start=bounds[0], end=bounds[1])
        return
    for topic in filter(is_wanted, topics):
        if table == "segments":
            yield TablePart(topic)
        else:
            yield from (TablePart(topic, group) for group in state_of(place).groups(topic))


def _lanes(place: Place, topic: str) -> list[tuple[Lane, tuple[int, int]]]:
    try:
        return [(lane, (bounds.start, bounds.end)) for lane, bounds in place.lanes(topic).items()]
    except TopicNotFound:
        return []  # Somebody has just deleted it.


def table_batches(table: str, place: Place, part: TablePart) -> Iterator[pa.RecordBatch]:
    """The rows of one task, with all columns of the table."""
    if part.lane is not None:
        yield from dead_letter_batches(place, part.lane, part.start, part.end)
        return
    schema = arrow_schema(table)
    rows = _rows(table, state_of(place), part)
    while chunk := list(islice(rows, _ROWS_MAX)):
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*chunk, strict=True), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows(table: str, state: State, part: TablePart) -> Iterator[tuple[object, ...]]:
    if table == "segments":
        return state.segment_rows(part.topic)
    assert part.group is not None, "the other tables are read by group"
    rows = state.group_rows if table == "groups" else state.delivery_rows
    return rows(part.topic, part.group)
