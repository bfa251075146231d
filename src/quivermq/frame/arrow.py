"""A frame as Arrow sees it: the same memory, other types. Needs pyarrow (`quivermq[spark]`)."""

from collections.abc import Sequence
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from quivermq.disk import Buffer
from quivermq.frame.frame import Frame
from quivermq.frame.layout import Binary, Int64, Pairs

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIME, nullable=False),
        ("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        ("headers", HEADERS),
        ("expires_at", TIME),
        ("dedup_id", pa.string()),
    ]
)


def arrow_batch(source: Buffer | Frame, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """The messages of a frame as a RecordBatch over the same memory; one decompression with a codec.

    Bytes are checked like any that come from outside, and the structure of every frame is checked
    before Arrow may follow its offsets: raises InvalidFrame. A control frame has no rows. `columns`
    chooses and orders columns of `SCHEMA`; what is not asked for is not made.
    """
    frame = source if isinstance(source, Frame) else Frame.parse(source)
    schema = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
    if frame.is_control:
        return pa.RecordBatch.from_pylist([], schema)
    arrays = [_array(frame, name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(frame: Frame, name: str) -> pa.Array:
    count = len(frame)
    if name == "offset":
        return pc.add(_numbers_below(_power_of_two(count)).slice(0, count), frame.header.base_offset)
    column = getattr(frame.layout, name)
    if column is None:
        if name == "timestamp":
            return pa.repeat(pa.scalar(frame.header.timestamp_min, TIME), count)
        if name == "headers":
            return pa.repeat(pa.scalar([], HEADERS), count)
        return pa.nulls(count, SCHEMA.field(name).type)
    if isinstance(column, Binary):
        return _binary(column, count, SCHEMA.field(name).type)
    if isinstance(column, Int64):
        buffers = [_buffer(column.validity), _buffer(column.data)]
        return pa.Array.from_buffers(TIME, count, buffers)
    return _headers(column, count)


def _binary(column: Binary, count: int, kind: pa.DataType) -> pa.Array:
    buffers = [_buffer(column.validity), _buffer(column.offsets_buffer), _buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers)


def _headers(column: Pairs, count: int) -> pa.Array:
    pairs = column.offsets[-1]
    children = [
        _binary(column.names, pairs, pa.string()),
        _binary(column.values, pairs, pa.binary()),
    ]
    struct = pa.Array.from_buffers(HEADERS.value_type, pairs, [None], children=children)
    return pa.Array.from_buffers(HEADERS, count, [None, _buffer(column.offsets_buffer)], children=[struct])


def _buffer(view: memoryview | None) -> pa.Buffer | None:
    return None if view is None else pa.py_buffer(view)


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


@cache
def _numbers_below(count: int) -> pa.Array:
    """0, 1, 2, …: made once a size, so that numbering a frame is one addition in C."""
    return pa.array(range(count), pa.int64())
