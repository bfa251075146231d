"""Some messages of a frame, at about the cost of those alone.

A frame is checked from end to end when it enters a log, and its checksum tells that it is still the same.
So whoever wants one message of a hundred thousand need not look at all of them again: only the offsets of
those that are wanted are checked here, and nothing is made of the others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import TypeVar

from quivermq.errors import InvalidFrame
from quivermq.frame.header import Header
from quivermq.frame.layout import Binary, Int64, Layout, PairsLayout

T = TypeVar("T")

Fields = tuple[int, int, bytes | None, bytes, dict[str, bytes], int | None, str | None, str | None]

# How many are taken at once by whoever does not know yet how many there will be.
CHUNK = 1024


def is_worth_it(wanted: int, count: int) -> bool:
    """Whether a part is so much less than the whole that it is better taken by itself."""
    return count > CHUNK and wanted * 4 < count


def fields_of(header: Header, layout: Layout, first: int, behind: int) -> Iterator[Fields]:
    """The fields of the messages from one index up to before another, in the order of a record's.

    Raises InvalidFrame where an offset leads out of its column.
    """
    count = behind - first
    timestamps: Iterable[int] = repeat(header.timestamp_min, count)
    if layout.timestamp is not None:
        timestamps = _numbers(layout.timestamp, first, behind)
    return zip(
        range(header.base_offset + first, header.base_offset + behind),
        timestamps,
        _optional(layout.key, first, behind, _nullable),
        values_of(layout.value, first, behind),
        _headers(layout.headers, first, behind),
        _optional(layout.expires_at, first, behind, _nullable_numbers),
        _optional(layout.dedup_id, first, behind, _nullable_texts),
        _optional(layout.origin_id, first, behind, _nullable_texts),
        strict=True,
    )


def values_of(column: Binary, first: int, behind: int) -> list[bytes]:
    """Some byte strings of a column."""
    offsets = part_of_offsets(column.offsets, first, behind, len(column.data))
    start = offsets[0]
    data = bytes(column.data[start : offsets[-1]])
    return [data[a - start : b - start] for a, b in pairwise(offsets)]


def part_of_offsets(offsets: Sequence[int], first: int, behind: int, size: int) -> list[int]:
    """Where some strings begin, and where the last one ends. Raises InvalidFrame."""
    part = list(offsets[first : behind + 1])
    if not 0 <= part[0] <= part[-1] <= size or sorted(part) != part:
        raise InvalidFrame("offsets do not run upwards in the body", position=0)
    return part


def _numbers(column: Int64, first: int, behind: int) -> list[int]:
    return column.data[8 * first : 8 * behind].cast("q").tolist()


def _present(validity: memoryview | None, first: int, behind: int) -> list[bool]:
    assert validity is not None, "a nullable column always has its bitmap"
    return [bool(validity[index >> 3] >> (index & 7) & 1) for index in range(first, behind)]


def _nullable(column: Binary, first: int, behind: int) -> list[bytes | None]:
    present = _present(column.validity, first, behind)
    return [v if p else None for v, p in zip(values_of(column, first, behind), present, strict=True)]


def _nullable_numbers(column: Int64, first: int, behind: int) -> list[int | None]:
    present = _present(column.validity, first, behind)
    return [n if p else None for n, p in zip(_numbers(column, first, behind), present, strict=True)]


def _nullable_texts(column: Binary, first: int, behind: int) -> list[str | None]:
    return [None if text is None else _decoded(text) for text in _nullable(column, first, behind)]


def _headers(pairs: PairsLayout | None, first: int, behind: int) -> list[dict[str, bytes]]:
    if pairs is None:
        return [{} for _ in range(first, behind)]
    offsets = part_of_offsets(pairs.offsets, first, behind, len(pairs.names.offsets) - 1)
    start, end = offsets[0], offsets[-1]
    names = list(map(_decoded, values_of(pairs.names, start, end)))
    items = list(zip(names, values_of(pairs.values, start, end), strict=True))
    return [dict(items[a - start : b - start]) for a, b in pairwise(offsets)]


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InvalidFrame("text is not UTF-8 in the body", position=0) from error


Column = TypeVar("Column", Binary, Int64)


def _optional(
    column: Column | None, first: int, behind: int, take: Callable[[Column, int, int], Sequence[T | None]]
) -> Iterable[T | None]:
    return repeat(None, behind - first) if column is None else take(column, first, behind)
