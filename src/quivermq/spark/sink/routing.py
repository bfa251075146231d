"""Which partition each row goes to: that of its key, as the topic itself would route it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quivermq.errors import InvalidRequest
from quivermq.spark.sink.encode import Offsets, binary_parts
from quivermq.topic.partition import LANE_NUMBERS, lane_number
from quivermq.topic.routing import murmur3

# A row that may go to any partition.
ANY_PARTITION = -1

Words = np.ndarray[Any, np.dtype[np.uint32]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

# Longer keys are hashed one by one: in columns, every key would take as many steps as the longest.
_LONG_BYTES = 256
_NORMAL = LANE_NUMBERS["normal"]


def partitions_of(rows: pa.RecordBatch, partitions: int) -> Numbers:
    """For each row the partition it asks for, or that of its key, or ANY_PARTITION. Raises InvalidRequest."""
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
        return np.full(len(rows), _NORMAL, np.int64)
    encoded = rows.column("priority").dictionary_encode()
    numbers = [lane_number(word) for word in encoded.dictionary.to_pylist()]
    table = np.array([*numbers, _NORMAL], np.int64)
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
