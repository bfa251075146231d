"""A frame as Arrow sees it: the same memory, other types. Needs pyarrow (`quivermq[spark]`)."""

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, InvalidRequest
from quivermq.frame.frame import Frame, check_times
from quivermq.frame.layout import Binary, Int64, PairsLayout, layout

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
        ("origin_id", pa.string()),
    ]
)

# Columns that no message has are shared between frames, but not when they would take much memory.
_SHARED_ROWS_MAX = 65_536
_NO_PAIRS = pa.array([], HEADERS.value_type)


def arrow_batch(source: Buffer | Frame, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """The messages of a frame as a RecordBatch over the same memory; one decompression with a codec.

    Bytes are checked like any that come from outside, and the structure of every frame is checked
    before anybody may follow its offsets: raises InvalidFrame. Only the times in the header are not
    compared with their column, which would take as long as all the rest: `Frame.validate` does it, and
    every frame went through that on its way into a log. A control frame has no rows. `columns` chooses
    and orders columns of `SCHEMA`; what is not asked for is not made. Raises InvalidRequest for a name
    that is none of them.
    """
    frame = source if isinstance(source, Frame) else Frame.parse(source)
    schema = SCHEMA if columns is None else _chosen(tuple(columns))
    if frame.is_control:
        return pa.RecordBatch.from_pylist([], schema)
    is_checked = frame.is_laid_out
    header = frame.header
    # Not kept in the frame: whoever has the batch does not come again.
    found = frame.layout if is_checked else layout(frame.raw, header.columns, len(frame), deep=False)
    arrays = [_array(frame, getattr(found, name, None), name) for name in schema.names]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else _rows_alone(len(frame))
    if not is_checked:
        if found.timestamp is None:
            check_times(header, None)
        _check_inside(batch)
    return batch


@lru_cache(maxsize=64)
def _chosen(columns: tuple[str, ...]) -> pa.Schema:
    for name in columns:
        if name not in SCHEMA.names:
            raise InvalidRequest(f"a frame has no column {name!r}: choose from {', '.join(SCHEMA.names)}")
    return pa.schema([SCHEMA.field(name) for name in columns])


def _rows_alone(count: int) -> pa.RecordBatch:
    """No columns, but as many rows as there are messages: enough for whoever only counts."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


def _check_inside(batch: pa.RecordBatch) -> None:
    """Have Arrow check its own offsets and text, before anybody follows them."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidFrame(f"the columns do not hold together: {error}", position=0) from None


def _array(frame: Frame, column: Binary | Int64 | PairsLayout | None, name: str) -> pa.Array:
    count = len(frame)
    if name == "offset":
        return pa.arange(frame.header.base_offset, frame.header.end_offset)
    if column is None:
        if name == "timestamp":
            return pa.repeat(pa.scalar(frame.header.timestamp_min, TIME), count)
        return absent(name, count)
    if isinstance(column, Binary):
        return _binary(column, count, SCHEMA.field(name).type)
    if isinstance(column, Int64):
        buffers = [_buffer(column.validity), _buffer(column.data)]
        return pa.Array.from_buffers(TIME, count, buffers)
    return _headers(column, count)


def _binary(column: Binary, count: int, kind: pa.DataType) -> pa.Array:
    buffers = [_buffer(column.validity), _buffer(column.offsets_buffer), _buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers)


def _headers(column: PairsLayout, count: int) -> pa.Array:
    pairs = column.offsets[-1]
    children = [
        _binary(column.names, pairs, pa.string()),
        _binary(column.values, pairs, pa.binary()),
    ]
    struct = pa.Array.from_buffers(HEADERS.value_type, pairs, [None], children=children)
    return pa.Array.from_buffers(HEADERS, count, [None, _buffer(column.offsets_buffer)], children=[struct])


def absent(name: str, count: int) -> pa.Array:
    """A column that no message has. Arrays never change, so frames of a size can share it."""
    return (_absent if count <= _SHARED_ROWS_MAX else _absent.__wrapped__)(name, count)


@lru_cache(maxsize=64)
def _absent(name: str, count: int) -> pa.Array:
    if name != "headers":
        return pa.nulls(count, SCHEMA.field(name).type)
    offsets = pa.py_buffer(bytes(4 * (count + 1)))
    return pa.Array.from_buffers(HEADERS, count, [None, offsets], children=[_NO_PAIRS])


def _buffer(view: memoryview | None) -> pa.Buffer | None:
    return None if view is None else pa.py_buffer(view)
