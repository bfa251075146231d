"""The raw body of a frame to where its columns lie, with every position checked.

Every buffer begins at a multiple of 8, so the position of each follows from the count, the column
mask and the last offset of the buffers before it: there is no directory that could lie. Arrow reads
whatever memory its offsets name; a body that went through `layout` names none but its own.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import sub
from struct import Struct
from typing import NamedTuple

from quivermq.errors import InvalidFrame
from quivermq.frame.header import Column, padded

_CONTINUATION_BYTE = re.compile(rb"[\x80-\xbf]")
# Of how many strings it is looked whether their lengths repeat themselves: of fewer it is not worth it,
# of more it would take too much room to remember.
_REPEATED_MIN, _REPEATED_MAX = 8, 1024
# So much text, and no more, is worth remembering.
_TEXT_BYTES_REMEMBERED = 16 * 1024


class Binary(NamedTuple):
    """Where a column of byte strings lies: the buffers Arrow wants, and the offsets as numbers."""

    validity: memoryview | None
    offsets_buffer: memoryview
    data: memoryview
    offsets: Sequence[int]
    unpack: Callable[[memoryview], tuple[bytes, ...]] | None = None
    """Takes the strings out of the data, where their lengths repeat themselves."""

    def values(self) -> list[bytes]:
        if self.unpack is not None:
            return list(self.unpack(self.data))
        data = bytes(self.data)
        return [data[start:end] for start, end in pairwise(self.offsets)]

    def nullable_values(self, count: int) -> list[bytes | None]:
        values: list[bytes | None] = [*self.values()]
        assert self.validity is not None, "a nullable column always has its bitmap"
        if int.from_bytes(self.validity, "little") == (1 << count) - 1:
            return values
        return [v if p else None for v, p in zip(values, presence(self.validity, count), strict=True)]

    def texts(self) -> Sequence[str]:
        """The strings as text: that they are that was checked. Messages of one kind have the same names."""
        if len(self.offsets_buffer) + len(self.data) <= _TEXT_BYTES_REMEMBERED:
            return _remembered_texts(bytes(self.offsets_buffer), bytes(self.data))
        return list(map(bytes.decode, self.values()))


@lru_cache(64)
def _remembered_texts(offsets_buffer: bytes, data: bytes) -> tuple[str, ...]:
    offsets = memoryview(offsets_buffer).cast("i")
    encoded = [data[start:end] for start, end in pairwise(offsets)]
    # The same name is the same object everywhere: a dict finds that sooner than equal ones.
    texts = {each: each.decode() for each in encoded}
    return tuple(map(texts.__getitem__, encoded))


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


class _Repeated(NamedTuple):
    """Offsets of strings whose lengths repeat a pattern: as bytes, as numbers, and what follows them."""

    buffer: bytes
    offsets: tuple[int, ...]
    unpack: Callable[[memoryview], tuple[bytes, ...]]


@lru_cache(64)
def _repeated(pattern: tuple[int, ...], count: int) -> _Repeated:
    times = count // len(pattern)
    offsets = tuple(accumulate(pattern * times, initial=0))
    unpack = Struct("".join(f"{length}s" for length in pattern) * times).unpack
    return _Repeated(Struct(f"<{len(offsets)}i").pack(*offsets), offsets, unpack)


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
        return buffer, self._checked(buffer.cast("i"), position)

    def _checked(self, offsets: Sequence[int], position: int) -> Sequence[int]:
        is_upward = offsets[0] == 0 <= offsets[-1]
        if self._deep:
            offsets = list(offsets)
            # On an ordered list the sort is one pass in C: the cheapest check that Python offers.
            is_upward = is_upward and sorted(offsets) == offsets
        if not is_upward:
            raise self._error("offsets do not run upwards from 0", position)
        return offsets

    def binary(self, count: int, period: int = 1) -> Binary:
        """A column of byte strings; their lengths may repeat themselves after so many."""
        position = self._position
        buffer = self.take(4 * (count + 1))
        numbers = buffer.cast("i")
        is_even = self._deep and period and _REPEATED_MIN * period <= count <= _REPEATED_MAX
        # A lie must not lead to numbers without end, and few columns that are not even come so far.
        if is_even and numbers[0] == 0 and numbers[period] * (count // period) == numbers[-1]:
            pattern = tuple(map(sub, numbers[1 : period + 1], numbers[:period]))
            repeated = _repeated(pattern, count) if min(pattern) >= 0 else None
            if repeated is not None and bytes(buffer) == repeated.buffer:
                return Binary(None, buffer, self.take(numbers[-1]), repeated.offsets, repeated.unpack)
        offsets = self._checked(numbers, position)
        return Binary(None, buffer, self.take(offsets[-1]), offsets)

    def nullable_binary(self, count: int) -> Binary:
        validity = self.bitmap(count)
        return self.binary(count)._replace(validity=validity)

    def text(self, count: int, period: int = 1) -> Binary:
        position = self._position
        column = self.binary(count, period)
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
        pairs = offsets[-1]
        # Mostly all messages have the same names.
        period = offsets[1] if pairs == count * offsets[1] else 1
        return PairsLayout(buffer, offsets, self.text(pairs, period), self.binary(pairs, period))

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
