"""A message that waits: how it is stored, which rank it has, and how it is called.

A rank is one number: the due time, then the bucket, then the offset in the bucket. So ranks sort as the
messages are released, and a million of them take little memory.
"""

import re
from collections.abc import Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812 - It is a class, whatever its name.
from typing import NamedTuple

from quivermq.errors import InvalidFrame
from quivermq.frame import Frame
from quivermq.frame.layout import Binary, Int64, Layout, PairsLayout, layout
from quivermq.model.lanes import LANES
from quivermq.model.messages import Scheduled

_SERIAL_BITS, _OFFSET_BITS = 32, 64
DUE_SHIFT = _SERIAL_BITS + _OFFSET_BITS
SERIAL_MAX = (1 << _SERIAL_BITS) - 1
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
# Behind every rank there can be: a due time has 63 bits.
RANK_END = 1 << (63 + DUE_SHIFT)

# Partition, lane, whether there is a key, the message's own timestamp: these stand before its key.
_HEAD = Struct("<IBBq")
_ID = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,8})-([0-9a-f]{1,16})", re.ASCII)
_INT64_MAX = 2**63 - 1


class Delayed(NamedTuple):
    """A message on its way into the store. Times are unix microseconds."""

    due: int
    partition: int
    priority: str
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes] | None
    timestamp: int
    expires_at: int | None
    dedup_id: str | None


class Stored(NamedTuple):
    """A message that waits, as it is read back."""

    rank: int
    partition: int
    lane: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    timestamp: int
    expires_at: int | None
    dedup_id: str | None

    def scheduled(self) -> Scheduled:
        return Scheduled(id_of(self.rank), due_of(self.rank), self.partition, LANES[self.lane], *self[3:])


def rank_of(due: int, serial: int, offset: int) -> int:
    """The rank of the message at an offset of a bucket."""
    return due << DUE_SHIFT | serial << _OFFSET_BITS | offset


def due_of(rank: int) -> int:
    return rank >> DUE_SHIFT


def serial_of(rank: int) -> int:
    return rank >> _OFFSET_BITS & SERIAL_MAX


def offset_of(rank: int) -> int:
    return rank & _OFFSET_MASK


def id_of(rank: int) -> str:
    """What callers know the message by."""
    return f"{due_of(rank):x}-{serial_of(rank):x}-{offset_of(rank):x}"


def rank_of_id(given: object) -> int | None:
    """The rank that an id stands for; None for anything that `id_of` cannot have made."""
    match = _ID.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        return None
    due, serial, offset = (int(part, 16) for part in match.groups())
    if due > _INT64_MAX or offset > _INT64_MAX:
        return None
    rank = rank_of(due, serial, offset)
    return rank if id_of(rank) == given else None


def stored_key(message: Delayed, lane: int) -> bytes:
    """The key under which a message is stored: what only the store has to know, then its own key."""
    head = _HEAD.pack(message.partition, lane, message.key is not None, message.timestamp)
    return head if message.key is None else head + message.key


def columns_in(frame: Frame) -> Layout:
    """Where the columns of a frame lie, without a look at each message: only few of them are wanted."""
    header = frame.header
    return layout(frame.raw, header.columns, header.message_count, deep=False)


def stored_at(columns: Layout, place: int, rank: int) -> Stored:
    """The message at a place in its frame. Raises InvalidFrame when it is not a frame of a bucket."""
    try:
        return _stored_at(columns, place, rank)
    except (UnicodeDecodeError, StructError) as error:
        raise InvalidFrame(f"a delayed message cannot be understood: {error}", position=0) from error


def _stored_at(columns: Layout, place: int, rank: int) -> Stored:
    head = _binary_at(columns.key, place) or b""
    partition, lane, has_key, timestamp = _HEAD.unpack_from(head)
    if lane >= len(LANES):
        raise InvalidFrame(f"a delayed message belongs to lane {lane}", position=0)
    dedup_id = _binary_at(columns.dedup_id, place)
    return Stored(
        rank,
        partition,
        lane,
        head[_HEAD.size :] if has_key else None,
        _slice(columns.value, place),
        {} if columns.headers is None else _headers_at(columns.headers, place),
        timestamp,
        _number_at(columns.expires_at, place),
        None if dedup_id is None else dedup_id.decode(),
    )


def _slice(column: Binary, place: int) -> bytes:
    start, end = column.offsets[place], column.offsets[place + 1]
    if not 0 <= start <= end <= len(column.data):
        raise InvalidFrame("offsets do not run upwards in the body", position=0)
    return bytes(column.data[start:end])


def _is_there(validity: memoryview | None, place: int) -> bool:
    return validity is None or bool(validity[place >> 3] >> (place & 7) & 1)


def _binary_at(column: Binary | None, place: int) -> bytes | None:
    return None if column is None or not _is_there(column.validity, place) else _slice(column, place)


def _number_at(column: Int64 | None, place: int) -> int | None:
    if column is None or not _is_there(column.validity, place):
        return None
    return int.from_bytes(column.data[8 * place : 8 * place + 8], "little", signed=True)


def _headers_at(pairs: PairsLayout, place: int) -> dict[str, bytes]:
    start, end = pairs.offsets[place], pairs.offsets[place + 1]
    if not 0 <= start <= end < len(pairs.names.offsets):
        raise InvalidFrame("offsets do not run upwards in the body", position=0)
    numbers = range(start, end)
    return {_slice(pairs.names, number).decode(): _slice(pairs.values, number) for number in numbers}
