"""The buffers we write are those that Arrow itself would make."""

from collections import UserDict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from quivermq.errors import InvalidRequest
from quivermq.frame import encode
from quivermq.frame.columns import (
    binary_column,
    headers_column,
    int64_column,
    nullable_binary_column,
    nullable_int64_column,
)

COUNTS = [1, 2, 7, 8, 9, 64, 100]


def used_bytes(array: Any) -> list[bytes]:
    """What of an array's buffers is used, each padded to a multiple of 8."""
    validity, *others = array.buffers()
    sizes = []
    if pa.types.is_timestamp(array.type):
        sizes = [8 * len(array)]
    else:
        offsets = others[0].to_pybytes()[: 4 * (len(array) + 1)]
        sizes = [len(offsets), int.from_bytes(offsets[-4:], "little")]
    buffers = [b"" if b is None else b.to_pybytes()[:n] for b, n in zip(others, sizes, strict=True)]
    if array.null_count:
        buffers.insert(0, validity.to_pybytes()[: (len(array) + 7) // 8])
    return [b + bytes(-len(b) % 8) for b in buffers]


@pytest.mark.parametrize("count", COUNTS)
def test_binary(count: int) -> None:
    values = [b"x" * (i % 5) for i in range(count)]
    assert binary_column(values) == used_bytes(pa.array(values, pa.binary()))


# Lengths are taken many at once, in one byte each where they fit: these are around all the limits of that.
@pytest.mark.parametrize("count", [2, 100, 127, 128, 129, 511, 512, 513])
@pytest.mark.parametrize("length", [0, 30, 31, 32, 33, 62, 63, 64, 254, 255, 256, 257, 1000])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_lengths(count: int, length: int, kind: Any) -> None:
    for first in (0, length, 63, 255, 5000):
        values = [bytes(first), *[b"x" * length] * (count - 2), b"xy"]
        assert binary_column([kind(value) for value in values]) == used_bytes(pa.array(values, pa.binary()))


@pytest.mark.parametrize("count", COUNTS)
def test_nullable_binary(count: int) -> None:
    values = [None if i % 3 == 0 else b"x" * (i % 5) for i in range(count)]
    assert nullable_binary_column(values, "key") == used_bytes(pa.array(values, pa.binary()))


@pytest.mark.parametrize("count", COUNTS)
def test_int64(count: int) -> None:
    values = [i * 10**15 - 5 for i in range(count)]
    assert int64_column(values) == used_bytes(pa.array(values, pa.timestamp("us")))


@pytest.mark.parametrize("count", COUNTS)
def test_nullable_int64(count: int) -> None:
    values = [None if i % 3 == 0 else i - 50 for i in range(count)]
    ours, theirs = nullable_int64_column(values), used_bytes(pa.array(values, pa.timestamp("us")))
    assert ours[0] == theirs[0]
    assert [v for v in memoryview(ours[1]).cast("q").tolist() if v] == [v for v in values if v]


@pytest.mark.parametrize("count", COUNTS)
def test_headers(count: int) -> None:
    headers = [{f"n{j}": b"v" * j for j in range(i % 4)} for i in range(count)]
    kind = pa.map_(pa.string(), pa.binary())
    theirs = pa.array([list(h.items()) for h in headers], kind)
    lists, *pairs = headers_column(headers)
    assert memoryview(lists).cast("i").tolist()[: count + 1] == theirs.offsets.to_pylist()
    assert pairs == used_bytes(theirs.keys) + used_bytes(theirs.items)


@pytest.mark.parametrize(
    "headers",
    [
        [{"trace": b"1", "type": b"a"}, {"trace": b"22", "type": b"b"}, {"trace": b"", "type": b"c"}],
        [{"trace": b"1", "type": b"a"}, {"type": b"a", "trace": b"1"}, {"trace": b"22", "type": b"b"}],
        [{"trace": b"1", "type": b"a"}, {"trace": b"1"}, {"trace": b"22", "type": b"b"}],
        [{"trace": b"1"}, {"trace": b"1", "type": b"a"}, {"trace": b"1"}],
        [{"é": b"1"}, {"": b"1"}, {"é": b"1"}],
        [{}, {"é": b"1"}, {}],
        [{"a": bytes(300), "b": b""}, {"a": bytes(100), "b": b"x"}],
    ],
)
def test_names_that_are_mostly_the_same(headers: list[dict[str, bytes]]) -> None:
    theirs = pa.array([list(h.items()) for h in headers], pa.map_(pa.string(), pa.binary()))
    lists, *pairs = headers_column(headers)
    assert memoryview(lists).cast("i").tolist()[: len(headers) + 1] == theirs.offsets.to_pylist()
    assert pairs == used_bytes(theirs.keys) + used_bytes(theirs.items)


def test_every_buffer_is_padded() -> None:
    buffers = [
        *nullable_binary_column([b"abc", None, b"d"], "key"),
        *headers_column([{"a": b"1"}, None]),
        *nullable_int64_column([1, None, 3]),
    ]
    assert all(len(buffer) % 8 == 0 for buffer in buffers)


def test_a_mapping_that_changes_while_it_is_read_is_refused() -> None:
    class Growing(UserDict[str, bytes]):
        def __iter__(self) -> Iterator[str]:
            self.data["b"] = b"2"
            return iter(list(self.data))

    with pytest.raises(InvalidRequest, match="they changed meanwhile"):
        encode([b"v"], timestamp=0, headers=[Growing(a=b"1")])
