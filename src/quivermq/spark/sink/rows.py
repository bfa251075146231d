"""Which columns a DataFrame may have to be written, and what becomes of each."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quivermq.disk import Buffer
from quivermq.errors import InvalidRequest
from quivermq.frame import Column, Frame, Producer
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.frame.codec import AnyCodec
from quivermq.frame.encode import frame_of
from quivermq.model.lanes import NORMAL, lane_number
from quivermq.topic.routing import murmur3

_CONTENT = ("binary", "string")
# By name, the types that Spark calls so.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": _CONTENT,
    "key": _CONTENT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "priority": ("string",),
    "timestamp": ("timestamp",),
    "expires_at": ("timestamp",),
}
# A row that was read has an offset, and its partition is where it was: neither says where it is to go. Nor
# is it the same message again, which its id for deduplication would say, or came or waited when that did.
_OFFSET = "offset"
_OF_THE_OLD_PLACE = (_OFFSET, "partition", "dedup_id", "append_time", "scheduled_id")

_ARROW_TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int64(),
    "priority": pa.string(),
    "timestamp": TIME,
    "expires_at": TIME,
}


def check_columns(types: Mapping[str, str], *, has_topic: bool) -> None:
    """Raise InvalidRequest for a DataFrame that cannot be written; `types` are Spark's names of types."""
    if _OFFSET in types:
        types = {name: kind for name, kind in types.items() if name not in _OF_THE_OLD_PLACE}
    unknown = [name for name in types if name not in COLUMNS]
    if unknown:
        dropped = ", ".join(f'"{name}"' for name in unknown)
        raise InvalidRequest(
            f"{', '.join(unknown)} cannot be written: the columns of a message are"
            f" {', '.join(COLUMNS)}. Leave it out with .drop({dropped}), or put it into value, as with"
            " to_json(struct(…))"
        )
    if "value" not in types:
        raise InvalidRequest(
            "there is no column value: say what is to be written, as with"
            " .selectExpr('to_json(struct(*)) AS value')"
        )
    if "topic" not in types and not has_topic:
        raise InvalidRequest(
            "nothing says which topic to write to: give the option `topic`, or a column topic"
        )
    for name, kind in types.items():
        if name == "headers":
            _check_headers(kind)
        elif kind not in COLUMNS[name]:
            raise InvalidRequest(f"{name} is {' or '.join(COLUMNS[name][:2])}, not {kind}: cast it")


def _check_headers(kind: str) -> None:
    """The fields in any order, the value as text or bytes."""
    fields = kind.removeprefix("array<struct<").removesuffix(">>").split(",")
    if sorted(fields) not in (["key:string", "value:binary"], ["key:string", "value:string"]):
        raise InvalidRequest(f"headers are {COLUMNS['headers'][0]}, not {kind}: cast them")


def rows_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with the types that messages have. Raises InvalidRequest where one is no message."""
    if _OFFSET in batch.schema.names:
        batch = _without_the_old_place(batch)
    arrays: dict[str, pa.Array] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        wanted = _ARROW_TYPES[name]
        if name == "headers":
            arrays[name] = _headers(column)
        elif column.type == wanted:
            arrays[name] = column
        else:
            arrays[name] = column.cast(wanted)
    if arrays["value"].null_count:
        raise InvalidRequest(
            "a value is null, and a message has one: leave such rows out, or write an empty value,"
            " as with coalesce(value, '')"
        )
    return pa.RecordBatch.from_pydict(arrays)


def _without_the_old_place(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without what they were elsewhere; those of an INSERT were nowhere, and may say where to go."""
    names = set(batch.schema.names)
    dropped = set(_OF_THE_OLD_PLACE)
    if batch.column(_OFFSET).null_count == batch.num_rows:
        dropped.discard("partition")
        for name in sorted(dropped & names - {_OFFSET}):
            if batch.column(name).null_count < batch.num_rows:
                raise InvalidRequest(f"{name} cannot be written: leave it out")
    return batch.drop_columns(sorted(dropped & names))


def _headers(column: Any) -> pa.Array:
    pairs = column.flatten()
    names, values = (pc.struct_field(pairs, name) for name in ("key", "value"))
    if names.null_count or values.null_count:
        raise InvalidRequest("a header has a name and a value: neither may be null")
    if column.type == HEADERS:
        return column
    children = [names.cast(pa.string()), values.cast(pa.binary())]
    struct = pa.StructArray.from_arrays(children, fields=list(HEADERS.value_type))
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), struct, HEADERS)


_ZEROS = bytes(8)
# A body is addressed with 31 bits; how much of that a topic takes, its broker knows.
_RAW_BYTES_MAX = 2**31 - 1

Offsets = np.ndarray[Any, np.dtype[np.int32]]


def encode_rows(rows: pa.RecordBatch, *, now_us: int, codec: AnyCodec, producer: Producer) -> Frame:
    """The frame of these rows, whose columns have the types of `rows_of`.

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


# A row that may go to any partition.
ANY_PARTITION = -1

Words = np.ndarray[Any, np.dtype[np.uint32]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

# Longer keys are hashed one by one: in columns, every key would take as many steps as the longest.
_LONG_BYTES = 256


def partitions_of(rows: pa.RecordBatch, partitions: int) -> Numbers:
    """For each row the partition it asks for, its key's, or ANY_PARTITION. Raises InvalidRequest."""
    names = rows.schema.names
    found = np.full(len(rows), ANY_PARTITION, np.int64)
    if "key" in names:
        found = _by_key(rows.column("key"), partitions)
    if "partition" in names:
        asked = rows.column("partition")
        given = pc.fill_null(asked, ANY_PARTITION).to_numpy()
        is_given = pc.is_valid(asked).to_numpy(zero_copy_only=False)
        wrong = is_given & ((given < 0) | (given >= partitions))
        if wrong.any():
            number = int(given[wrong][0])
            raise InvalidRequest(f"there is no partition {number}: the topic has {partitions}")
        found = np.where(is_given, given, found)
    # Where there is one, all rows go there, and keep their order whether they have a key or not.
    return np.zeros_like(found) if partitions == 1 else found


def lanes_of(rows: pa.RecordBatch) -> Numbers:
    """For each row the number of its lane; without a priority it is normal. Raises InvalidRequest."""
    if "priority" not in rows.schema.names:
        return np.full(len(rows), NORMAL, np.int64)
    encoded = rows.column("priority").dictionary_encode()
    numbers = [lane_number(word) for word in encoded.dictionary.to_pylist()]
    table = np.array([*numbers, NORMAL], np.int64)
    taken: Numbers = table[pc.fill_null(encoded.indices, len(numbers)).to_numpy()]
    return taken


def _by_key(keys: pa.Array, partitions: int) -> Numbers:
    if keys.null_count == len(keys):
        return np.full(len(keys), ANY_PARTITION, np.int64)
    if partitions == 1:
        return np.zeros(len(keys), np.int64)
    found = (murmur3_of(pc.fill_null(keys, b"")) % np.uint32(partitions)).astype(np.int64)
    if keys.null_count:
        found[pc.is_null(keys).to_numpy(zero_copy_only=False)] = ANY_PARTITION
    return found


def murmur3_of(keys: pa.Array) -> Words:
    """`topic.routing.murmur3` of every key of a column without nulls, all of them step by step together."""
    offsets, content = binary_parts(keys)
    lengths = np.diff(offsets)
    # A word may be looked at up to its end, also where a key, or the last one, ends before.
    data = np.frombuffer(bytes(content) + bytes(4), np.uint8)
    result = np.zeros(len(keys), np.uint32)
    short = np.flatnonzero(lengths < _LONG_BYTES)
    # With numbers of 32 bits everything is cut to 32 bits by itself.
    with np.errstate(over="ignore"):
        result[short] = _hashes(data, offsets[:-1][short], lengths[short])
    for index in np.flatnonzero(lengths >= _LONG_BYTES):
        result[index] = murmur3(keys[int(index)].as_py())
    return result


def _hashes(data: np.ndarray[Any, np.dtype[np.uint8]], starts: Offsets, lengths: Offsets) -> Words:
    result = np.zeros(len(starts), np.uint32)
    for word in range(int(lengths.max(initial=0)) // 4):
        active = np.flatnonzero(lengths >= 4 * word + 4)
        mixed = result[active] ^ _mixed_word(_words(data, starts[active] + 4 * word))
        result[active] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    rest = lengths % 4
    active = np.flatnonzero(rest)
    # What lies behind the end of a key is not part of its last word.
    mask = (np.uint32(1) << (8 * rest[active]).astype(np.uint32)) - np.uint32(1)
    result[active] ^= _mixed_word(_words(data, starts[active] + lengths[active] // 4 * 4) & mask)
    result ^= lengths.astype(np.uint32)
    result = (result ^ result >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    result = (result ^ result >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return result ^ result >> np.uint32(16)


def _words(data: np.ndarray[Any, np.dtype[np.uint8]], positions: Offsets) -> Words:
    """The little-endian words at any positions."""
    found = data[positions].astype(np.uint32)
    for byte in (1, 2, 3):
        found |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return found


def _mixed_word(words: Words) -> Words:
    return _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(words: Words, bits: int) -> Words:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)
