"""Messages of a lane as Arrow batches of a size that Spark likes, live or archived."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import pyarrow as pa

from quivermq.archive import ArchivedTopic
from quivermq.errors import InvalidRequest
from quivermq.frame import Frame, Header
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.frame.batches import ROWS_MAX, frame_batches
from quivermq.model.lanes import Lane
from quivermq.topic.offsets import OffsetSet

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("priority", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("headers", HEADERS),
        ("expires_at", TIME),
        ("dedup_id", pa.string()),
        ("append_time", TIME),
        ("scheduled_id", pa.string()),
    ]
)

_OF_LANE = ("topic", "partition", "priority")
# What frames and archives call otherwise.
STORED_NAMES = {"scheduled_id": "origin_id"}


class FrameSource(Protocol):
    """As much of a `MessageReader` as reading a range needs."""

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]: ...

    def removed(self, lane: Lane) -> OffsetSet: ...


def record_batches(
    reader: FrameSource,
    lane: Lane,
    start: int,
    end: int,
    columns: Sequence[str] = SCHEMA.names,
    *,
    rows_max: int = ROWS_MAX,
    wanted: Callable[[Header], bool] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The messages of a lane with offsets in [start, end), in order, without removed and compacted ones.

    `columns` chooses and orders columns of `SCHEMA`. Frames of which `wanted` says no by their header are
    left out, undecoded. Raises what `MessageReader.frames` raises, and InvalidFrame.
    """
    schema = chosen(columns)
    removed = reader.removed(lane)
    # Nothing before the floor is shown, so it need not be read either.
    start = max(start, min(removed.floor, end))
    frames = reader.frames(lane, start, end)
    if wanted is not None:
        frames = (frame for frame in frames if wanted(frame.header))
    # At least one column of the frames' own, which says how many rows there are.
    names = stored_names(columns) or ["offset"]
    for batch in frame_batches(frames, names, start, end, removed, rows_max=rows_max):
        yield _completed(batch, lane, schema)


def chosen(columns: Sequence[str]) -> pa.Schema:
    """The columns of those names, in that order. Raises InvalidRequest for one that there is not."""
    for name in columns:
        if name not in SCHEMA.names:
            raise InvalidRequest(f"messages have no column {name!r}: choose from {', '.join(SCHEMA.names)}")
    return pa.schema([SCHEMA.field(name) for name in columns])


def stored_names(columns: Sequence[str]) -> list[str]:
    """What frames and archives call the columns, but for those that are the same for all messages."""
    return [STORED_NAMES.get(name, name) for name in columns if name not in _OF_LANE]


def _completed(batch: pa.RecordBatch, lane: Lane, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns that are the same for all messages of a lane."""
    if not schema.names:
        return batch.select([])
    arrays = [
        _repeated(getattr(lane, field.name), batch.num_rows)
        if field.name in _OF_LANE
        # The same in other words: a list of the log calls its items otherwise than one of Parquet.
        else batch.column(STORED_NAMES.get(field.name, field.name)).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _repeated(value: str | int, rows: int) -> pa.Array:
    return _constant(value)[:rows] if rows <= ROWS_MAX else _constant.__wrapped__(value, rows)


@lru_cache(maxsize=64)
def _constant(value: str | int, rows: int = ROWS_MAX) -> pa.Array:
    kind = pa.string() if isinstance(value, str) else pa.int32()
    return pa.repeat(pa.scalar(value, kind), rows)


def archived_batches(
    archived: ArchivedTopic, lane: Lane, start: int, end: int, columns: Sequence[str], removed: OffsetSet
) -> Iterator[pa.RecordBatch]:
    """The messages of [start, end) but for those that were removed since they were archived."""
    schema = chosen(columns)
    # At least one column of the file's own, which says how many rows there are.
    names = stored_names(schema.names) or ["offset"]
    for first, behind in _left(start, end, removed):
        for batch in archived.batches(lane, first, behind, names):
            for position in range(0, batch.num_rows, ROWS_MAX):
                yield _completed(batch.slice(position, ROWS_MAX), lane, schema)


def _left(start: int, end: int, removed: OffsetSet) -> Iterator[tuple[int, int]]:
    """What is left of a range, as ranges."""
    start = max(start, min(removed.floor, end))
    inside = [min(max(edge, start), end) for edge in removed.runs()]
    for first, behind in list(pairwise([start, *inside, end]))[::2]:
        if first < behind:
            yield first, behind
