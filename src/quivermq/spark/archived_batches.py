"""Archived messages of a lane as Arrow batches, just like those of the log."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from quivermq.archive import ArchivedTopic, LanePlace
from quivermq.spark.batches import ROWS_MAX, STORED_NAMES, chosen, stored_names
from quivermq.spark.place import Lane
from quivermq.topic.offsets import OffsetSet


def archived_batches(
    archived: ArchivedTopic, lane: Lane, start: int, end: int, columns: Sequence[str], removed: OffsetSet
) -> Iterator[pa.RecordBatch]:
    """The messages of [start, end) but for those that were removed since they were archived."""
    schema = chosen(columns)
    place = LanePlace(lane.partition, lane.priority)
    # At least one column of the file's own, which says how many rows there are.
    names = stored_names(schema.names, ("topic",)) or ["offset"]
    for first, behind in _left(start, end, removed):
        for batch in archived.batches(place, first, behind, names):
            for position in range(0, batch.num_rows, ROWS_MAX):
                yield _completed(batch.slice(position, ROWS_MAX), lane.topic, schema)


def _left(start: int, end: int, removed: OffsetSet) -> Iterator[tuple[int, int]]:
    """What is left of a range, as ranges."""
    start = max(start, min(removed.floor, end))
    inside = [min(max(edge, start), end) for edge in removed.runs()]
    for first, behind in list(pairwise([start, *inside, end]))[::2]:
        if first < behind:
            yield first, behind


def _completed(batch: pa.RecordBatch, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        return batch.select([])
    arrays = [
        pa.repeat(pa.scalar(topic, field.type), batch.num_rows)
        if field.name == "topic"
        # The same in other words: a list of the log calls its items otherwise than one of Parquet.
        else batch.column(STORED_NAMES.get(field.name, field.name)).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
