"""Arrow columns to a frame: its body is in Arrow's own layout, so that whole buffers are copied.

No loop over messages runs in bytecode, and no message becomes an object.
"""

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quivermq.disk import Buffer
from quivermq.frame import Column, Frame, Producer
from quivermq.frame.codec import AnyCodec
from quivermq.frame.encode import frame_of

_ZEROS = bytes(8)
# A body is addressed with 31 bits; how much of that a topic takes, its broker knows.
_RAW_BYTES_MAX = 2**31 - 1

Offsets = np.ndarray[Any, np.dtype[np.int32]]


def encode_rows(rows: pa.RecordBatch, *, now_us: int, codec: AnyCodec, producer: Producer) -> Frame:
    """The frame of these rows, whose columns have the types of `shape.rows_of`.

    Rows without a timestamp get `now_us`. Columns that say where a row goes are left to others.
    """
    arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns, buffers = int(Column.VALUE), binary_buffers(arrays["value"])
    key, headers = arrays.get("key"), arrays.get("headers")
    if key is not None and key.null_count < len(key):
        columns |= Column.KEY
        buffers += [_bitmap(key), *binary_buffers(_filled(key, b""))]
    if headers is not None and len(pairs := headers.flatten()):
        columns |= Column.HEADERS
        buffers += _header_buffers(headers, pairs)
    times = arrays.get("timestamp")
    timestamp_min = timestamp_max = now_us
    if times is not None:
        columns |= Column.TIMESTAMP
        moments = _filled(times.view(pa.int64()), now_us)
        buffers.append(_fixed(moments))
        found = pc.min_max(moments)
        timestamp_min, timestamp_max = found["min"].as_py(), found["max"].as_py()
    expires_at = arrays.get("expires_at")
    if expires_at is not None and expires_at.null_count < len(expires_at):
        columns |= Column.EXPIRES_AT
        buffers += [_bitmap(expires_at), _fixed(_filled(expires_at.view(pa.int64()), 0))]
    return frame_of(
        b"".join(padded for buffer in buffers for padded in (buffer, _ZEROS[: -len(buffer) % 8])),
        count=len(rows),
        timestamps=(timestamp_min, timestamp_max),
        columns=columns,
        codec=codec,
        producer=producer,
        raw_bytes_max=_RAW_BYTES_MAX,
    )


def binary_parts(array: pa.Array) -> tuple[Offsets, memoryview]:
    """Where each item of a column without nulls begins and ends, counted from its first byte; the bytes."""
    if not len(array):
        return np.zeros(1, np.int32), memoryview(b"")
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, "<i4", len(array) + 1, 4 * array.offset)
    start, end = int(offsets[0]), int(offsets[-1])
    content = memoryview(b"") if data is None else memoryview(data)[start:end]
    return (offsets - offsets[0] if start else offsets), content


def binary_buffers(array: pa.Array) -> list[Buffer]:
    """As a frame has them: offsets, then bytes."""
    offsets, data = binary_parts(array)
    return [offsets.tobytes(), data]


def _header_buffers(headers: pa.Array, pairs: pa.Array) -> list[Buffer]:
    """Which pairs belong to which message, then the names and the values of all pairs."""
    counts = _filled(pc.list_value_length(headers), 0).to_numpy()
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    names, values = (pc.struct_field(pairs, name) for name in ("key", "value"))
    return [ends.tobytes(), *binary_buffers(names), *binary_buffers(values)]


def _bitmap(array: pa.Array) -> bytes:
    """One bit a row, least significant first, 1 where there is something; zeros behind the last."""
    is_there = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return np.packbits(is_there, bitorder="little").tobytes()


def _fixed(array: pa.Array) -> bytes:
    """The numbers of a column without nulls."""
    return cast(bytes, array.to_numpy().tobytes())


def _filled(array: pa.Array, value: object) -> pa.Array:
    return pc.fill_null(array, value) if array.null_count else array
