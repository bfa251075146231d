"""Messages to the raw body of a frame: columns in Arrow's buffer layout.

The loops run inside `bytes.join`, `itertools` and `struct`; only the less common columns are touched
message by message, and only here, at the producer's edge.

Each function returns its column's buffers in stored order, each padded with zeros to a multiple of 8.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, chain
from operator import is_not
from struct import Struct, pack
from struct import error as StructError  # noqa: N812 - It is a class, whatever its name.
from sys import byteorder
from typing import Any, NamedTuple, TypeVar, cast

from quivermq.errors import InvalidRequest
from quivermq.frame.header import padded

Headers = Mapping[str, bytes]

T = TypeVar("T")

_INT32_MAX = 2**31 - 1
_LONG_BYTES = 8
_ZEROS = bytes(8)
_NO_HEADERS: Headers = {}
# So many names, so long, and no more, are worth remembering; and so many lengths.
_NAMES_REMEMBERED, _NAMES_REMEMBERED_BYTES = 16, 256
_LENGTHS_REMEMBERED, _COLUMNS_REMEMBERED, _KINDS_REMEMBERED = 1024, 256, 4096
# For `_lengths`: how wide an item is packed, where most are short or some are not, and how much at once.
# With more, the allocator gave memory back and took it again with every batch.
_NARROW_BYTES, _WIDE_BYTES = 64, 256
_PACKED_BYTES = 32 * 1024
# A native long is packed much faster than a "q", where it is what is stored.
_LONGS = "{}l" if Struct("l").size == _LONG_BYTES and byteorder == "little" else "<{}q"
_is_present = partial(is_not, None)


class JoinedBytes(NamedTuple):
    """Byte strings, and all of them as one: the join has seen that they are that."""

    items: Sequence[bytes]
    data: bytes

    @classmethod
    def of(cls, items: Sequence[bytes], name: str = "value") -> "JoinedBytes":
        """Raises InvalidRequest; `name` is what to call an item that is wrong."""
        try:
            return cls(items, b"".join(items))
        except Exception as error:
            raise _explain(name, items, error) from error


# As in `Put`: the class's own constructor would cost more than the rest.
joined_bytes = partial(tuple.__new__, JoinedBytes)


def binary_column(values: Sequence[bytes] | JoinedBytes, name: str = "value") -> list[bytes]:
    """int32 offsets, then the bytes of all values; `name` is what to call one that is wrong."""
    items, data = values if isinstance(values, JoinedBytes) else JoinedBytes.of(values, name)
    try:
        return [_offsets(items, 1, len(data)), _pad(data)]
    except (TypeError, StructError) as error:
        raise _explain(name, items, error) from error


def _offsets(items: Sequence[bytes], period: int, data_bytes: int, times: int = 1) -> bytes:
    """Where items begin and end in data that has them one behind the other, and all of them so many times.

    Where their lengths are the same again and again (ids, records of one size, headers of one kind of
    message), they are so in the next batch, too: what that comes to is remembered.
    """
    lengths = _lengths(items, data_bytes // times)
    count = len(items) * times
    if 0 < period <= count <= _LENGTHS_REMEMBERED and lengths == lengths[:period] * (len(items) // period):
        offsets = _repeated_offsets(lengths[:period], count)
    else:
        offsets = _plain_offsets(lengths * times, count)
    if int.from_bytes(offsets[4 * count : 4 * count + 4], "little") != data_bytes:
        raise InvalidRequest("a memoryview must have items of one byte: use .cast('B')")
    return offsets


def _lengths(items: Sequence[bytes], data_bytes: int) -> bytes | tuple[int, ...]:
    """How long each of the items is, which have so many bytes together.

    To ask each of them would be a call each. `struct` takes many in one: by the format "64p" each becomes
    64 bytes, the first of which says how long it is, or 63 where that is longer.
    """
    count = len(items)
    width = _NARROW_BYTES if 2 * data_bytes < _NARROW_BYTES * count else _WIDE_BYTES
    if data_bytes < width * count:
        try:
            packed = [
                _packer(width, len(part))(*part)[::width] for part in _parts(items, _PACKED_BYTES // width)
            ]
        except StructError:
            # It knows bytes, and no memoryview.
            return tuple(map(len, items))
        lengths = b"".join(packed)
        if width - 1 not in lengths:
            return lengths
    return tuple(map(len, items))


def _are_bytes(items: Sequence[object]) -> bool:
    """Whether each is bytes or a bytearray: many in one call likewise, though none of them is packed."""
    try:
        for part in _parts(items, _PACKED_BYTES // _NARROW_BYTES):
            _packer(0, len(part))(*part)
    except StructError:
        return False
    return True


def _parts(items: Sequence[T], count_max: int) -> list[Sequence[T]]:
    if len(items) <= count_max:
        return [items]
    return [items[start : start + count_max] for start in range(0, len(items), count_max)]


@lru_cache(256)
def _packer(width: int, count: int) -> Callable[..., bytes]:
    return Struct(f"{width}p" * count if width else "0s" * count).pack


def _plain_offsets(lengths: Iterable[int], count: int) -> bytes:
    return _ints(count + 1)(*accumulate(lengths, initial=0))


@lru_cache(256)
def _repeated_offsets(pattern: bytes | tuple[int, ...], count: int) -> bytes:
    return _plain_offsets(pattern * (count // len(pattern)), count)


def part_of_binary(offsets: Sequence[int], data: memoryview) -> list[bytes]:
    """As `binary_column`, of values that lie in another column: `offsets` say where in its data."""
    start = offsets[0]
    moved = pack(f"<{len(offsets)}i", *[offset - start for offset in offsets])
    return [_pad(moved), _pad(bytes(data[start : offsets[-1]]))]


def nullable_binary_column(values: Sequence[bytes | None] | JoinedBytes, name: str) -> list[bytes]:
    """A bitmap of the values that are there, then as `binary_column`."""
    if isinstance(values, JoinedBytes):
        return [_all_there(len(values.items)), *binary_column(values, name)]
    if None not in values:
        return [_all_there(len(values)), *binary_column(cast("Sequence[bytes]", values), name)]
    return [_bitmap(values), *binary_column([b"" if v is None else v for v in values], name)]


class JoinedHeaders(NamedTuple):
    """The headers of messages, checked, as the column that they become."""

    headers: Sequence[Headers]
    """As they were when they came in: whoever gave them may change a dict meanwhile."""
    buffers: list[bytes]
    pairs: int
    """How many headers all messages have together."""
    size: int
    """How many bytes names and contents have."""
    is_plain: bool
    """Whether they are dicts of bytes or bytearrays: no other mappings, and nothing else that has bytes."""

    @classmethod
    def of(cls, headers: Sequence[Headers | None]) -> "JoinedHeaders":
        """Raises InvalidRequest unless each is a mapping of str to bytes, or None."""
        kinds = set(map(type, headers))
        try:
            copies = _copied(headers, kinds)
            if kinds <= _DICTS:
                named, contents, times = _joined_dicts(copies)
            else:
                counts, names = tuple(map(len, copies)), tuple(chain.from_iterable(copies))
                contents, times = tuple(chain.from_iterable([each.values() for each in copies])), 1
                if not sum(counts) == len(names) == len(contents):
                    raise ValueError("they changed meanwhile")
                named = _names_column(counts, names)
            data = JoinedBytes.of(contents, "header value").data * times
            count = len(contents) * times
            offsets = _offsets(contents, count // len(headers), len(data), times)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise InvalidRequest(
                f"headers must be a mapping of str to bytes without lone surrogates: {error}"
            ) from error
        except StructError as error:
            raise _too_large(error) from error
        is_plain = kinds <= _DICTS_OR_NONE and _are_bytes(contents)
        buffers = [*named[0], offsets, _pad(data)]
        return _joined_headers((copies, buffers, count, named[1] + len(data), is_plain))


# As in `Put`: the class's own constructor would cost more than the rest.
_joined_headers = partial(tuple.__new__, JoinedHeaders)


def _copied(headers: Sequence[Any], kinds: set[type[Any]]) -> Sequence[Any]:
    """Each as it is at one moment; but for other mappings than dicts, which may have a name twice."""
    if kinds <= _DICTS:
        first = headers[0]
        if first is headers[-1] and _are_equal(headers):
            return (first.copy(),) * len(headers)
        return tuple(map(dict.copy, headers))
    return [
        _NO_HEADERS if each is None else each.copy() if type(each) is dict else each for each in headers
    ]


def _joined_dicts(
    headers: Sequence[Any],
) -> tuple[tuple[list[bytes], int], tuple[bytes, ...], int]:
    """The names of the headers as they are stored; their contents, and how many times these are there."""
    count, first = len(headers), headers[0]
    if first is headers[-1] and _are_equal(headers):
        return _same_names(tuple(first), count), tuple(first.values()), count
    names = tuple(chain.from_iterable(headers))
    # A dict has no name twice: so none of these has more than the first has, and none has less.
    if names != (*first,) * count:
        named = _names_column(tuple(map(len, headers)), names)
    else:
        named = _same_names(names[: len(first)], count)
        if first == headers[-1] and _are_equal(headers):
            return named, tuple(first.values()), count
    return named, tuple(chain.from_iterable(map(dict.values, headers))), 1


def _are_equal(headers: Sequence[dict[str, bytes]]) -> bool:
    return tuple(headers) == (headers[0],) * len(headers)


def headers_column(headers: Sequence[Headers | None] | JoinedHeaders) -> list[bytes]:
    """int32 offsets into the pairs, then the names and the values of all pairs."""
    return (headers if isinstance(headers, JoinedHeaders) else JoinedHeaders.of(headers)).buffers


class CheckedHeaders(dict[str, bytes]):
    """The headers of one message, copied when it came in, and as the column of a frame that has only it."""

    __slots__ = ("column", "size")

    column: bytes
    size: int
    """How many bytes names and contents have."""

    @classmethod
    def of(cls, headers: Headers) -> "CheckedHeaders":
        """Raises TypeError or ValueError for a name that is no text; contents are for the caller to check.

        Messages of one kind have the same names, and contents of a few lengths: these are remembered.
        """
        checked = cls(headers)
        contents = checked.values()
        kind = (tuple(checked), tuple(map(len, contents)))
        before, behind, checked.size = _remembered_kinds.get(kind) or _kind_of(*kind)
        checked.column = before + b"".join(contents) + behind
        return checked


def _kind_of(names: tuple[str, ...], lengths: tuple[int, ...]) -> tuple[bytes, bytes, int]:
    """What stands before the contents, what behind them, and how many bytes names and contents have."""
    named, names_bytes = _names_column((len(names),), names)
    size = sum(lengths)
    kind = b"".join((*named, _plain_offsets(lengths, len(lengths)))), bytes(-size % 8), names_bytes + size
    if _are_short(names):
        if len(_remembered_kinds) >= _KINDS_REMEMBERED:
            _remembered_kinds.clear()
        _remembered_kinds[names, lengths] = kind
    return kind


_DICTS = {dict, CheckedHeaders}
_DICTS_OR_NONE = {*_DICTS, type(None)}
_remembered_kinds: dict[tuple[tuple[str, ...], tuple[int, ...]], tuple[bytes, bytes, int]] = {}


def _same_names(names: tuple[str, ...], count: int) -> tuple[list[bytes], int]:
    """As `_names_column`, for so many messages, each of which has these names."""
    found = _remembered_names.get((names, count))
    if found is None:
        found = _names_column((len(names),) * count, names, count)
        if len(names) * count <= _LENGTHS_REMEMBERED and _are_short(names):
            if len(_remembered_names) >= _COLUMNS_REMEMBERED:
                _remembered_names.clear()
            _remembered_names[names, count] = found
    return found


_remembered_names: dict[tuple[tuple[str, ...], int], tuple[list[bytes], int]] = {}


def _are_short(names: tuple[str, ...]) -> bool:
    return len(names) <= _NAMES_REMEMBERED and sum(map(len, names)) <= _NAMES_REMEMBERED_BYTES


def _names_column(counts: tuple[int, ...], names: Sequence[str], times: int = 1) -> tuple[list[bytes], int]:
    """Which headers belong to which message, the names of all, and how many bytes those have.

    The names are there so many times, one behind the other.
    """
    encoded = list(map(str.encode, names))
    data = b"".join(encoded) * times
    lengths = tuple(map(len, encoded)) * times
    belonging, ends = _plain_offsets(counts, len(counts)), _plain_offsets(lengths, len(lengths))
    return [belonging, ends, _pad(data)], len(data)


@lru_cache(256)
def _ints(count: int) -> Callable[..., bytes]:
    """Packs so many numbers of 32 bits, with their padding."""
    return Struct(f"<{count}i4x" if count % 2 else f"<{count}i").pack


class Times(NamedTuple):
    """Timestamps, one a message, as their column, and the first and the last of them."""

    data: bytes
    lowest: int
    highest: int

    @classmethod
    def of(cls, timestamps: Sequence[int]) -> "Times":
        """Raises InvalidRequest unless they are 64-bit integers."""
        [data] = int64_column(timestamps)
        # They mostly come in order, and then a sort is one pass in C: half as long as min and max.
        in_order = sorted(timestamps)
        return cls(data, in_order[0], in_order[-1])


@lru_cache(256)
def _longs(count: int) -> Callable[..., bytes]:
    return Struct(_LONGS.format(count)).pack


def int64_column(values: Sequence[int]) -> list[bytes]:
    """One 64-bit number a message."""
    try:
        return [_longs(len(values))(*values)]
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
    for index, value in enumerate(values):
        if not isinstance(value, bytes | bytearray | memoryview):
            return InvalidRequest(
                f"{name} {index} of the batch is a {type(value).__name__} where bytes belong:"
                " encode it first"
            )
    if isinstance(error, StructError):
        return _too_large(error)
    return InvalidRequest(f"a {name} of the batch cannot be read as bytes: {error}")


def _too_large(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"a batch holds at most {_INT32_MAX} bytes a column: {error}")
