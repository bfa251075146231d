"""How changes of state are written: a kind, a lane, and 64-bit numbers; or a kind and some text.

Every record of a state log is a run of these. All are multiples of 8 bytes long.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from sys import byteorder
from typing import NamedTuple

from quivermq.errors import InvalidFrame

# Kind, lane, how many bytes of text come first, how many numbers follow.
_HEAD = Struct("<BBHI")


class Change(NamedTuple):
    """One change: what it is, in which lane, with which numbers and text."""

    kind: int
    lane: int
    numbers: Sequence[int]
    text: bytes = b""


def pack(kind: int, lane: int, numbers: Iterable[int], text: bytes = b"") -> bytes:
    """A change as bytes."""
    column = array("q", numbers)
    if byteorder == "big":
        column.byteswap()
    return b"".join(
        (_HEAD.pack(kind, lane, len(text), len(column)), text, bytes(-len(text) % 8), column.tobytes())
    )


def unpack(record: bytes) -> Iterator[Change]:
    """The changes in a record. Raises InvalidFrame: somebody else wrote it, or a later release."""
    position = 0
    while position < len(record):
        try:
            kind, lane, text_bytes, count = _HEAD.unpack_from(record, position)
        except Exception as error:
            raise InvalidFrame(f"a change of state is cut short: {error}", position=position) from error
        start = position + _HEAD.size
        behind_text = start + text_bytes + -text_bytes % 8
        end = behind_text + 8 * count
        if end > len(record):
            raise InvalidFrame("a change of state is longer than its record", position=position)
        numbers = array("q", record[behind_text:end])
        if byteorder == "big":
            numbers.byteswap()
        yield Change(kind, lane, numbers, record[start : start + text_bytes])
        position = end
