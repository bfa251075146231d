"""The raw body of a frame to where its columns lie, with every position checked.

Every buffer begins at a multiple of 8, so the position of each follows from the count, the column
mask and the last offset of the buffers before it: there is no directory that could lie. Arrow reads
whatever memory its offsets name; a body that went through `layout` names none but its own.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from quivermq.errors import InvalidFrame
from quivermq.frame.header import Column, padded

_CONTINUATION_BYTE = re.compile(rb"[\x80-\xbf]")


class Binary(NamedTuple):
    """Where a column of byte strings lies: the buffers Arrow wants, and the offsets as numbers."""

    validity: memoryview | None
    offsets_buffer: memoryview
    data: memoryview
    offsets: Sequence[int]

    def values(self) -> list[bytes]:
        data = bytes(self.data)
        return [data[start:end] for start, end in pairwise(self.offsets)]

    def nullable_values(self, count: int) -> list[bytes | None]:
        values = self.values()
        return [v if p else None for v, p in zip(values, presence(self.validity, count), strict=True)]


class PairsLayout(NamedTuple):
    """Where the headers lie: which pairs belong to which message, the names, the values."""

    offsets_buffer: memoryview
    offsets: Sequence[int]
    names: Binary
    values: Binary


class Int64(NamedTuple):
    """Where a column of numbers lies."""

    validity: memoryview | None
    data: memoryview

    def values(self) -> list[int]:
        return self.data.cast("q").tolist()


class Layout(NamedTuple):
    """The columns of one body; None where the frame has no such column."""

    value: Binary
    key: Binary | None
    headers: PairsLayout | None
    timestamp: Int64 | None
    expires_at: Int64 | None
    dedup_id: Binary | None
    origin_id: Binary | None


def presence(validity: memoryview | None, count: int) -> Iterable[bool]:
    """Which values are there."""
    assert validity is not None, "a nullable column always has its bitmap"
    bits = format(int.from_bytes(validity, "little"), f"0{count}b")
    return map("1".__eq__, reversed(bits))


def layout(body: memoryview, columns: int, count: int, *, deep: bool = True) -> Layout:
    """Find and check every buffer of a raw body.

    Raises InvalidFrame unless each offset points into its buffer, none runs backwards, all text is
    UTF-8, all padding is zero and nothing is left over. After that no reader can be led outside.
    Without `deep` only the buffers themselves are checked, and whoever follows the offsets inside
    them checks those first: Arrow can do it faster.
    """
    walk = _Walk(body, deep)
    result = Layout(
        value=walk.binary(count),
        key=walk.nullable_binary(count) if columns & Column.KEY else None,
        headers=walk.pairs(count) if columns & Column.HEADERS else None,
        timestamp=Int64(None, walk.take(8 * count)) if columns & Column.TIMESTAMP else None,
        expires_at=walk.nullable_int64(count) if columns & Column.EXPIRES_AT else None,
        dedup_id=walk.nullable_text(count) if columns & Column.DEDUP_ID else None,
        origin_id=walk.nullable_text(count) if columns & Column.ORIGIN_ID else None,
    )
    walk.finish()
    return result


class _Walk:
    """Takes one buffer after the other off the body."""

    def __init__(self, body: memoryview, deep: bool) -> None:
        self._body = body
        self._deep = deep
        self._position = 0

    def take(self, length: int) -> memoryview:
        start, end = self._position, self._position + length
        self._position = padded(end)
        if self._position > len(self._body):
            raise self._error(f"a column of {length} bytes runs past the end", start)
        if end != self._position and any(self._body[end : self._position]):
            raise self._error("padding is not zero", end)
        return self._body[start:end]

    def offsets(self, count: int) -> tuple[memoryview, Sequence[int]]:
        position = self._position
        buffer = self.take(4 * (count + 1))
        offsets: Sequence[int] = buffer.cast("i")
        is_upward = offsets[0] == 0 <= offsets[-1]
        if self._deep:
            offsets = list(offsets)
            # On an ordered list the sort is one pass in C: the cheapest check that Python offers.
            is_upward = is_upward and sorted(offsets) == offsets
        if not is_upward:
            raise self._error("offsets do not run upwards from 0", position)
        return buffer, offsets

    def binary(self, count: int) -> Binary:
        buffer, offsets = self.offsets(count)
        return Binary(None, buffer, self.take(offsets[-1]), offsets)

    def nullable_binary(self, count: int) -> Binary:
        validity = self.bitmap(count)
        return self.binary(count)._replace(validity=validity)

    def text(self, count: int) -> Binary:
        position = self._position
        column = self.binary(count)
        if self._deep and not (data := bytes(column.data)).isascii():
            self._check_text(data, column.offsets, position)
        return column

    def nullable_text(self, count: int) -> Binary:
        validity = self.bitmap(count)
        return self.text(count)._replace(validity=validity)

    def nullable_int64(self, count: int) -> Int64:
        return Int64(self.bitmap(count), self.take(8 * count))

    def pairs(self, count: int) -> PairsLayout:
        buffer, offsets = self.offsets(count)
        return PairsLayout(buffer, offsets, self.text(offsets[-1]), self.binary(offsets[-1]))

    def bitmap(self, count: int) -> memoryview:
        position = self._position
        bitmap = self.take((count + 7) // 8)
        if count % 8 and bitmap[-1] >> (count % 8):
            raise self._error("a bitmap has bits behind its last message", position)
        return bitmap

    def finish(self) -> None:
        if self._position != len(self._body):
            raise self._error("bytes are left over behind the last column", self._position)

    def _check_text(self, data: bytes, offsets: Sequence[int], position: int) -> None:
        """All of it is UTF-8, and no string begins inside a character: so each one is UTF-8."""
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise self._error("text is not UTF-8", position) from error
        starts = offsets[: bisect_left(offsets, len(data))]
        if _CONTINUATION_BYTE.search(bytes(map(data.__getitem__, starts))):
            raise self._error("a string begins inside a character", position)

    def _error(self, reason: str, position: int) -> InvalidFrame:
        return InvalidFrame(f"{reason} in the body", position=position)
