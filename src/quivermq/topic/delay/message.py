"""A message that waits: how it is stored, alone and in batches, which rank it has, and how it is called.

A rank is one number: the due time, then the bucket, then the offset in the bucket. So ranks sort as the
messages are released, and a million of them take little memory.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - It is a class, whatever its name.
from typing import Any, NamedTuple, TypeVar

from quivermq.errors import InvalidFrame
from quivermq.frame.layout import Binary, Int64, Layout, PairsLayout
from quivermq.model.lanes import LANE_COUNT, PRIORITIES
from quivermq.model.messages import Scheduled
from quivermq.settings import StorageSettings

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

_BATCH_MESSAGES_MAX = 1000
_BATCH_BYTES_MAX = 1024 * 1024
# What a frame takes for a message, with the id that it gets in its lane, and for a header of it, besides
# their bytes.
_MESSAGE_OVERHEAD_BYTES = 84
_HEADER_OVERHEAD_BYTES = 8


class Delayed(NamedTuple):
    """A message on its way into the store. Times are unix microseconds."""

    due: int
    partition: int
    lane: int
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes] | None
    timestamp: int
    expires_at: int | None
    dedup_id: str | None


class WaitingMessage(NamedTuple):
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
        return Scheduled(
            id_of(self.rank), due_of(self.rank), self.partition, PRIORITIES[self.lane], *self[3:]
        )


M = TypeVar("M", Delayed, WaitingMessage)


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


def stored_key(message: Delayed) -> bytes:
    """The key under which a message is stored: what only the store has to know, then its own key."""
    head = _HEAD.pack(message.partition, message.lane, message.key is not None, message.timestamp)
    return head if message.key is None else head + message.key


def batches(
    messages: Sequence[M], settings: StorageSettings, group_of: Callable[[M], int] | None = None
) -> Iterator[list[M]]:
    """Runs of messages, each of one group and no larger than a batch may be."""
    count_max = min(_BATCH_MESSAGES_MAX, settings.batch_messages)
    bytes_max = min(_BATCH_BYTES_MAX, settings.batch_bytes)
    batch: list[M] = []
    size = group = 0
    for message in messages:
        its_size = _size(message)
        its_group = 0 if group_of is None else group_of(message)
        is_full = len(batch) == count_max or size + its_size > bytes_max
        if batch and (is_full or its_group != group):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size, group = size + its_size, its_group
    if batch:
        yield batch


def columns_of(messages: Sequence[M], keys: Sequence[bytes | None], times: Sequence[int]) -> dict[str, Any]:
    """The columns of `Log.append_many`, by name."""
    return {
        "values": [message.value for message in messages],
        # One time for all of them takes no column.
        "timestamp": times if min(times) < max(times) else times[0],
        "keys": keys,
        "headers": [message.headers for message in messages],
        "expires_at": [message.expires_at for message in messages],
        "dedup_ids": [message.dedup_id for message in messages],
    }


def _size(message: Delayed | WaitingMessage) -> int:
    size = _MESSAGE_OVERHEAD_BYTES + len(message.value) + len(message.key or b"")
    if message.dedup_id:
        size += len(message.dedup_id.encode())
    if message.headers:
        for name, content in message.headers.items():
            size += _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(content)
    return size


def stored_at(columns: Layout, index: int, rank: int) -> WaitingMessage:
    """The message at an index of its frame. Raises InvalidFrame when it is not a frame of a bucket."""
    # Not by `frame.parts`, which takes three times as long for a single message.
    try:
        return _stored_at(columns, index, rank)
    except (UnicodeDecodeError, StructError) as error:
        raise InvalidFrame(f"a delayed message cannot be understood: {error}", position=0) from error


def _stored_at(columns: Layout, index: int, rank: int) -> WaitingMessage:
    head = _binary_at(columns.key, index) or b""
    partition, lane, has_key, timestamp = _HEAD.unpack_from(head)
    if lane >= LANE_COUNT:
        raise InvalidFrame(f"a delayed message belongs to lane {lane}", position=0)
    dedup_id = _binary_at(columns.dedup_id, index)
    return WaitingMessage(
        rank,
        partition,
        lane,
        head[_HEAD.size :] if has_key else None,
        _slice(columns.value, index),
        {} if columns.headers is None else _headers_at(columns.headers, index),
        timestamp,
        _number_at(columns.expires_at, index),
        None if dedup_id is None else dedup_id.decode(),
    )


def _slice(column: Binary, index: int) -> bytes:
    start, end = column.offsets[index], column.offsets[index + 1]
    if not 0 <= start <= end <= len(column.data):
        raise InvalidFrame("offsets do not run upwards in the body", position=0)
    return bytes(column.data[start:end])


def _is_there(validity: memoryview | None, index: int) -> bool:
    return validity is None or bool(validity[index >> 3] >> (index & 7) & 1)


def _binary_at(column: Binary | None, index: int) -> bytes | None:
    return None if column is None or not _is_there(column.validity, index) else _slice(column, index)


def _number_at(column: Int64 | None, index: int) -> int | None:
    if column is None or not _is_there(column.validity, index):
        return None
    return int.from_bytes(column.data[8 * index : 8 * index + 8], "little", signed=True)


def _headers_at(pairs: PairsLayout, index: int) -> dict[str, bytes]:
    start, end = pairs.offsets[index], pairs.offsets[index + 1]
    if not 0 <= start <= end < len(pairs.names.offsets):
        raise InvalidFrame("offsets do not run upwards in the body", position=0)
    numbers = range(start, end)
    return {_slice(pairs.names, number).decode(): _slice(pairs.values, number) for number in numbers}
