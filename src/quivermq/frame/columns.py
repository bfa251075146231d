"""Messages to the raw body of a frame: columns in Arrow's buffer layout.

The loops run inside `bytes.join`, `itertools.accumulate` and `struct`; only the less common columns
are touched message by message, and only here, at the producer's edge.

Each function returns its column's buffers in stored order, each padded with zeros to a multiple of 8.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from operator import is_not
from struct import error as StructError  # noqa: N812 - It is a class, whatever its name.
from struct import pack
from typing import Any

from quivermq.errors import InvalidRequest
from quivermq.frame.header import padded

Headers = Mapping[str, bytes]

_INT32_MAX = 2**31 - 1
_ZEROS = bytes(8)
_is_present = partial(is_not, None)


def binary_column(values: Sequence[bytes], name: str = "value") -> list[bytes]:
    """int32 offsets, then the bytes of all values; `name` is what to call one that is wrong."""
    try:
        offsets = pack(f"<{len(values) + 1}i", *accumulate(map(len, values), initial=0))
        data = b"".join(values)
    except Exception as error:
        raise _explain(name, values, error) from error
    if int.from_bytes(offsets[-4:], "little") != len(data):
        raise InvalidRequest("a memoryview must have items of one byte: use .cast('B')")
    return [_pad(offsets), _pad(data)]


def part_of_binary(offsets: Sequence[int], data: memoryview) -> list[bytes]:
    """As `binary_column`, of values that lie in another column: `offsets` say where in its data."""
    start = offsets[0]
    moved = pack(f"<{len(offsets)}i", *[offset - start for offset in offsets])
    return [_pad(moved), _pad(bytes(data[start : offsets[-1]]))]


def nullable_binary_column(values: Sequence[bytes | None], name: str) -> list[bytes]:
    """A bitmap of the values that are there, then as `binary_column`."""
    return [_bitmap(values), *binary_column([b"" if v is None else v for v in values], name)]


def headers_column(headers: Sequence[Headers | None]) -> list[bytes]:
    """int32 offsets into the pairs, then the names and the values of all pairs."""
    try:
        items = [() if h is None else tuple(h.items()) for h in headers]
        counts = pack(f"<{len(items) + 1}i", *accumulate(map(len, items), initial=0))
        pairs = list(chain.from_iterable(items))
        names = [name.encode() for name, _ in pairs]
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"headers must be a mapping of str to bytes without lone surrogates: {error}"
        ) from error
    contents = [content for _, content in pairs]
    return [_pad(counts), *binary_column(names, "header name"), *binary_column(contents, "header value")]


def int64_column(values: Sequence[int]) -> list[bytes]:
    """One 64-bit number a message."""
    try:
        return [pack(f"<{len(values)}q", *values)]
    except Exception as error:
        raise InvalidRequest(f"timestamps must be 64-bit integers (microseconds): {error}") from error


def nullable_int64_column(values: Sequence[int | None]) -> list[bytes]:
    """A bitmap of the values that are there, then the numbers, 0 where there is none."""
    return [_bitmap(values), *int64_column([0 if v is None else v for v in values])]


def _bitmap(values: Sequence[Any]) -> bytes:
    """One bit a message, least significant first, 1 where the value is there."""
    digits = bytes(map(_is_present, values)).translate(b"01" + bytes(254))
    bits = int(digits[::-1], 2)
    return bits.to_bytes(padded((len(values) + 7) // 8), "little")


def _pad(buffer: bytes) -> bytes:
    missing = -len(buffer) % 8
    return buffer + _ZEROS[:missing] if missing else buffer


def _explain(name: str, values: Iterable[object], error: Exception) -> InvalidRequest:
    for place, value in enumerate(values):
        if not isinstance(value, bytes | bytearray | memoryview):
            return InvalidRequest(
                f"{name} {place} of the batch is a {type(value).__name__} where bytes belong:"
                " encode it first"
            )
    if isinstance(error, StructError):
        return InvalidRequest(f"a batch holds at most {_INT32_MAX} bytes a column: {error}")
    return InvalidRequest(f"a {name} of the batch cannot be read as bytes: {error}")
