"""Messages to the raw body of a frame: columns in Arrow's buffer layout.

The loops run inside `bytes.join`, `itertools.accumulate` and `struct`; only the less common columns
are touched message by message, and only here, at the producer's edge.

Each function returns its column's buffers in stored order, each padded with zeros to a multiple of 8.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, chain
from operator import is_not
from struct import Struct, pack
from struct import error as StructError  # noqa: N812 - It is a class, whatever its name.
from typing import Any, NamedTuple, cast

from quivermq.errors import InvalidRequest
from quivermq.frame.header import padded

Headers = Mapping[str, bytes]

_INT32_MAX = 2**31 - 1
_ZEROS = bytes(8)
_NO_HEADERS: Headers = {}
# So many names, so long, and no more, are worth remembering.
_NAMES_REMEMBERED, _NAMES_REMEMBERED_BYTES = 16, 256
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
    if None not in values:
        return [_all_there(len(values)), *binary_column(cast("Sequence[bytes]", values), name)]
    return [_bitmap(values), *binary_column([b"" if v is None else v for v in values], name)]


class Pairs(NamedTuple):
    """The headers of messages, one after the other."""

    counts: list[int]
    """How many pairs each message has."""
    names: list[str]
    contents: list[bytes]

    @classmethod
    def of(cls, headers: Iterable[Headers | None]) -> "Pairs":
        """Those of mappings."""
        given = [_NO_HEADERS if h is None else h for h in headers]
        contents = list(chain.from_iterable([h.values() for h in given]))
        return cls(list(map(len, given)), list(chain.from_iterable(given)), contents)


def headers_column(headers: Sequence[Headers | None] | Pairs) -> list[bytes]:
    """int32 offsets into the pairs, then the names and the values of all pairs."""
    try:
        counts, names, contents = headers if isinstance(headers, Pairs) else Pairs.of(headers)
        offsets = pack(f"<{len(counts) + 1}i", *accumulate(counts, initial=0))
        texts = "".join(names)
        is_ascii = texts.isascii()
        encoded = names if is_ascii else list(map(str.encode, names))
        ends = pack(f"<{len(names) + 1}i", *accumulate(map(len, encoded), initial=0))
        data = texts.encode()
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"headers must be a mapping of str to bytes without lone surrogates: {error}"
        ) from error
    except StructError as error:
        raise _too_large(error) from error
    return [_pad(offsets), _pad(ends), _pad(data), *binary_column(contents, "header value")]


def lone_headers(headers: Headers) -> bytes:
    """The same of one message, which has some. The caller has checked them."""
    contents = headers.values()
    data = b"".join(contents)
    names = tuple(headers)
    ends = _ints(len(names) + 1)(*accumulate(map(len, contents), initial=0))
    return names_column(names)[0] + ends + data + _ZEROS[: -len(data) % 8]


def names_column(names: tuple[str, ...]) -> tuple[bytes, int]:
    """Where the headers of one message begin and end, and their names; and how many bytes those have.

    Messages of one kind have the same names, so those that are short are remembered.
    """
    if len(names) <= _NAMES_REMEMBERED and sum(map(len, names)) <= _NAMES_REMEMBERED_BYTES:
        return _remembered_names(names)
    return _names_column(names)


def _names_column(names: tuple[str, ...]) -> tuple[bytes, int]:
    encoded = list(map(str.encode, names))
    data = b"".join(encoded)
    ends = _ints(len(names) + 1)(*accumulate(map(len, encoded), initial=0))
    return pack("<ii", 0, len(names)) + ends + _pad(data), len(data)


_remembered_names = lru_cache(4096)(_names_column)


@lru_cache(64)
def _ints(count: int) -> Callable[..., bytes]:
    """Packs so many numbers of 32 bits, with their padding."""
    return Struct(f"<{count}i4x" if count % 2 else f"<{count}i").pack


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


def _all_there(count: int) -> bytes:
    return ((1 << count) - 1).to_bytes(padded((count + 7) // 8), "little")


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
        return _too_large(error)
    return InvalidRequest(f"a {name} of the batch cannot be read as bytes: {error}")


def _too_large(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"a batch holds at most {_INT32_MAX} bytes a column: {error}")
