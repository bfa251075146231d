"""Finding messages by what is in them, without a look at each: whole frames are searched at once.

Most frames of a log hold nothing of what somebody looks for, and one `in` over the raw body tells so. Only
where the bytes do occur is the body taken apart, to see whether they lie inside of one message.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quivermq.frame.compaction import each_left, left_of, records_at
from quivermq.frame.frame import Frame
from quivermq.frame.layout import Binary, presence
from quivermq.model.messages import Record


class Wanted(NamedTuple):
    """What somebody looks for: messages with this key, and with this text in value, key or a header."""

    key: bytes | None = None
    text: bytes | None = None

    def __bool__(self) -> bool:
        return self.key is not None or bool(self.text)

    def records(self, frame: Frame, start: int = 0) -> Iterable[Record]:
        """The messages of a frame from an offset on that are meant, without those that were compacted."""
        if frame.is_control:
            return []
        if not self:
            return each_left(frame, start)
        # A copy, because only bytes can be searched; it is made at the speed of memory.
        raw = bytes(frame.raw)
        if (self.key and self.key not in raw) or (self.text and self.text not in raw):
            return []
        indexes = self._indexes(frame)
        if not indexes:
            return []
        first = start - frame.header.base_offset
        return left_of(frame, records_at(frame, sorted(index for index in indexes if index >= first)))

    def _indexes(self, frame: Frame) -> set[int]:
        """Which messages of the frame are meant, by their index in it."""
        found = None if self.key is None else set(_with_key(frame, self.key))
        if self.text:
            having = set(_with_text(frame, self.text))
            found = having if found is None else found & having
        return found or set()


def _with_key(frame: Frame, key: bytes) -> Iterator[int]:
    column = frame.layout.key
    if column is None:
        return
    offsets = column.offsets
    if not key:
        present = enumerate(presence(column.validity, len(frame)))
        yield from (index for index, has_key in present if has_key and _is_empty(offsets, index))
        return
    for index, start in _keys_having(column, key, len(frame)):
        if start == offsets[index] and start + len(key) == offsets[index + 1]:
            yield index


def _with_text(frame: Frame, text: bytes) -> Iterator[int]:
    columns = frame.layout
    yield from (index for index, _ in _occurrences(columns.value, text))
    if columns.key is not None:
        yield from (index for index, _ in _keys_having(columns.key, text, len(frame)))
    if columns.headers is not None:
        ends = columns.headers.offsets
        for pair, _ in _occurrences(columns.headers.values, text):
            yield bisect_right(ends, pair) - 1


def _keys_having(column: Binary, sought: bytes, count: int) -> Iterator[tuple[int, int]]:
    present = list(presence(column.validity, count))
    # Where there is no key, there may still be bytes that nobody is to see.
    return ((index, start) for index, start in _occurrences(column, sought) if present[index])


def _occurrences(column: Binary, sought: bytes) -> Iterator[tuple[int, int]]:
    """Each string that has the bytes in it, by its index, and the first position of them in the column."""
    data, offsets = bytes(column.data), column.offsets
    position = data.find(sought)
    while position >= 0:
        # Of strings that begin at the same position only the last one is not empty.
        index = bisect_right(offsets, position) - 1
        if position + len(sought) <= offsets[index + 1]:
            yield index, position
        # Otherwise they only seem to be there, half in one string and half in the next, and what is left of
        # the string is too short for them as well.
        position = data.find(sought, offsets[index + 1])


def _is_empty(offsets: Sequence[int], index: int) -> bool:
    return offsets[index] == offsets[index + 1]
