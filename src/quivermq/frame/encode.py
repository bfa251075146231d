"""Columns of messages to a frame: the only loop over messages that a producer pays for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from struct import Struct
from typing import Any, NamedTuple

from crc32c import crc32c

from quivermq.errors import InvalidRequest, MessageTooLarge
from quivermq.frame.codec import AnyCodec, compress
from quivermq.frame.columns import (
    CheckedHeaders,
    Headers,
    JoinedBytes,
    JoinedHeaders,
    Times,
    binary_column,
    headers_column,
    nullable_binary_column,
    nullable_int64_column,
    part_of_binary,
)
from quivermq.frame.frame import RAW_BYTES_MAX, Frame
from quivermq.frame.header import VERSION, Codec, Column, Flag, Header, packed_alone
from quivermq.frame.parts import part_of_offsets
from quivermq.model.messages import Record

COUNT_MAX = 2**32 - 1
# More than a body can have: each of its columns is addressed with 31 bits.
_UNLIMITED_BYTES = 2**63

_USUAL = (list, tuple)
# Sequences, too, but of characters and bytes, and never a column of messages.
_STRINGS = (str, bytes, bytearray, memoryview)


# What `lone_frame` puts around a value: where it begins and ends, zeros up to a multiple of 8, and the
# bitmap of a column that the one message has.
_lone_offsets = Struct("<ii").pack
_lone_number = Struct("<q").pack
_PADDINGS = [bytes(-length % 8) for length in range(8)]
_THERE = b"\1" + bytes(7)
_VALUE = int(Column.VALUE)


class EntryFields(NamedTuple):
    """What a message has beside its value. Times are unix microseconds."""

    key: bytes | None = None
    headers: Headers | None = None
    timestamp: int | None = None
    expires_at: int | None = None
    dedup_id: str | None = None


@dataclass(frozen=True, slots=True)
class Producer:
    """Who sent a batch, and where it stands in what they sent: a repeated send is recognised by it."""

    producer_id: int = 0
    epoch: int = 0
    base_sequence: int = 0

    def __post_init__(self) -> None:
        for name, bits in (("producer_id", 64), ("epoch", 16), ("base_sequence", 32)):
            if not 0 <= getattr(self, name) < 1 << bits:
                raise InvalidRequest(f"{name} has {bits} bits and cannot be {getattr(self, name)}")


ANONYMOUS = Producer()


def encode(
    values: Sequence[bytes] | JoinedBytes,
    *,
    timestamp: int | Sequence[int] | Times,
    keys: Sequence[bytes | None] | JoinedBytes | None = None,
    headers: Sequence[Headers | None] | JoinedHeaders | None = None,
    expires_at: Sequence[int | None] | None = None,
    dedup_ids: Sequence[str | None] | None = None,
    origin_ids: Sequence[str | None] | None = None,
    codec: AnyCodec = Codec.NONE,
    producer: Producer = ANONYMOUS,
    flags: int = 0,
    raw_bytes_max: int = RAW_BYTES_MAX,
) -> Frame:
    """Encode one batch; message i is made of item i of every column that is given.

    `timestamp` is one number for the whole batch or one a message. A column in which no message has
    anything costs nothing; one that comes joined was checked by who joined it, and has an item for every
    message. Raises InvalidRequest or MessageTooLarge, and then nothing was made.
    """
    count = len(values.items) if isinstance(values, JoinedBytes) else _length("values", values)
    if not count:
        raise InvalidRequest("a batch has at least one message")
    columns: int = Column.VALUE
    buffers = binary_column(values)
    if keys is not None and (isinstance(keys, JoinedBytes) or _has_any("keys", keys, count)):
        columns |= Column.KEY
        buffers += nullable_binary_column(keys, "key")
    if headers is not None and _has_headers(headers, count):
        columns |= Column.HEADERS
        buffers += headers_column(headers)
    if isinstance(timestamp, int):
        _check_time(timestamp)
        timestamp_min = timestamp_max = timestamp
    else:
        if not isinstance(timestamp, Times):
            _check_length("timestamp", timestamp, count)
            timestamp = Times.of(timestamp)
        columns |= Column.TIMESTAMP
        data, timestamp_min, timestamp_max = timestamp
        buffers.append(data)
    if expires_at is not None and _has_any("expires_at", expires_at, count):
        columns |= Column.EXPIRES_AT
        buffers += nullable_int64_column(expires_at)
    if dedup_ids is not None and _has_any("dedup_ids", dedup_ids, count):
        columns |= Column.DEDUP_ID
        buffers += nullable_binary_column(_utf8("dedup_id", dedup_ids), "dedup_id")
    if origin_ids is not None and _has_any("origin_ids", origin_ids, count):
        columns |= Column.ORIGIN_ID
        buffers += nullable_binary_column(_utf8("origin_id", origin_ids), "origin_id")
    return frame_of(
        b"".join(buffers),
        count=count,
        timestamps=(timestamp_min, timestamp_max),
        columns=columns,
        flags=flags,
        codec=codec,
        producer=producer,
        raw_bytes_max=raw_bytes_max,
    )


def encode_records(
    records: Sequence[Record], append_time: int, producer: Producer = ANONYMOUS, flags: int = 0
) -> Frame:
    """A frame of messages that follow each other in a log, at their place, without their neighbours."""
    offsets, timestamps, keys, values, headers, expires_at, dedup_ids, origin_ids = zip(
        *records, strict=True
    )
    frame = encode(
        values,
        timestamp=timestamps[0] if timestamps.count(timestamps[0]) == len(timestamps) else timestamps,
        keys=keys,
        headers=headers,
        expires_at=expires_at,
        dedup_ids=dedup_ids,
        origin_ids=origin_ids,
        producer=producer,
        flags=flags,
        # What is in a log already may be handed out, however small the limits are today.
        raw_bytes_max=_UNLIMITED_BYTES,
    )
    return frame.stamped(offsets[0], append_time)


class LoneFrame(NamedTuple):
    """A frame of one message, all of it but where and when it is appended."""

    crc: int
    stored_bytes: int
    raw_bytes: int
    columns: int
    codec: int
    timestamp: int | None
    """None of a message that came in just now."""
    stored: bytes
    """With its padding."""

    def at(self, base_offset: int, append_time: int) -> bytes:
        """The bytes of the frame at its place in a log."""
        crc, stored_bytes, raw_bytes, columns, codec, timestamp, stored = self
        if timestamp is None:
            timestamp = append_time
        return (
            packed_alone(crc, stored_bytes, raw_bytes, base_offset, append_time, timestamp, columns, codec)
            + stored
        )


# As in `Put`: the class's own constructor would cost more than the rest.
_lone = partial(tuple.__new__, LoneFrame)
_header = partial(tuple.__new__, Header)


def lone_frame(value: bytes, rest: EntryFields | None = None, codec: AnyCodec = Codec.NONE) -> LoneFrame:
    """The frame that `encode` makes of one message, without anything in between.

    Logs that are written one by one live by this. The caller has checked what `encode` would have.
    """
    length = len(value)
    body = _lone_offsets(0, length) + value + _PADDINGS[length % 8]
    columns: int = _VALUE
    timestamp = None
    if rest is not None:
        key, headers, timestamp, expires_at, dedup_id = rest
        if key is not None:
            columns |= Column.KEY
            length = len(key)
            body += _THERE + _lone_offsets(0, length) + key + _PADDINGS[length % 8]
        if headers:
            columns |= Column.HEADERS
            checked = headers if isinstance(headers, CheckedHeaders) else CheckedHeaders.of(headers)
            body += checked.column
        if expires_at is not None:
            columns |= Column.EXPIRES_AT
            body += _THERE + _lone_number(expires_at)
        if dedup_id is not None:
            columns |= Column.DEDUP_ID
            data = dedup_id.encode()
            length = len(data)
            body += _THERE + _lone_offsets(0, length) + data + _PADDINGS[length % 8]
    size = len(body)
    if codec is Codec.NONE:
        return _lone((crc32c(body), size, size, columns, 0, timestamp, body))
    stored, used = compress(body, codec)
    stored_bytes = len(stored)
    padding = _PADDINGS[stored_bytes % 8]
    return _lone((crc32c(stored), stored_bytes, size, columns, used, timestamp, stored + padding))


def encode_control(record: bytes, *, count: int, timestamp: int) -> Frame:
    """A frame that takes `count` offsets, carries no messages and says why in `record`."""
    if not 0 < count <= COUNT_MAX:
        raise InvalidRequest(f"a frame takes 1 to {COUNT_MAX} offsets, not {count}")
    _check_time(timestamp)
    return frame_of(
        record + bytes(-len(record) % 8),
        count=count,
        timestamps=(timestamp, timestamp),
        columns=0,
        flags=Flag.CONTROL,
    )


def part_of(frame: Frame, start: int, end: int) -> Frame:
    """The messages from one offset up to another, at their place, without the others."""
    header = frame.header
    first, behind = start - header.base_offset, end - header.base_offset
    if header.columns != Column.VALUE:
        return encode_records(frame.part(first, behind), header.append_time)
    values = frame.shallow_layout.value
    offsets = part_of_offsets(values.offsets, first, behind, len(values.data))
    part = frame_of(
        b"".join(part_of_binary(offsets, values.data)),
        count=end - start,
        timestamps=(header.timestamp_min, header.timestamp_max),
        columns=Column.VALUE,
        raw_bytes_max=_UNLIMITED_BYTES,
    )
    return part.stamped(start, header.append_time)


def with_expiry(frame: Frame, expires_at: int) -> Frame:
    """The same messages from the same producer; those that would never expire do so at that time."""
    header = frame.header
    has_times = header.columns & Column.TIMESTAMP
    return encode(
        frame.values(),
        timestamp=list(frame.timestamps()) if has_times else header.timestamp_min,
        keys=list(frame.keys()),
        headers=list(frame.headers()),
        expires_at=[expires_at if time is None else time for time in frame.expires_at()],
        dedup_ids=list(frame.dedup_ids()),
        origin_ids=list(frame.origin_ids()),
        codec=Codec(header.codec),
        producer=Producer(header.producer_id, header.producer_epoch, header.base_sequence),
        # The column may make it a little larger than the producer was allowed to.
        raw_bytes_max=_UNLIMITED_BYTES,
    )


def first_messages(frame: Frame, count: int) -> Frame:
    """A frame at the same place with only the first `count` messages."""
    header = frame.header
    if frame.is_control:
        head = encode_control(bytes(frame.raw), count=count, timestamp=header.timestamp_min)
    else:
        has_times = header.columns & Column.TIMESTAMP
        head = encode(
            frame.values()[:count],
            timestamp=list(islice(frame.timestamps(), count)) if has_times else header.timestamp_min,
            keys=list(islice(frame.keys(), count)),
            headers=list(islice(frame.headers(), count)),
            expires_at=list(islice(frame.expires_at(), count)),
            dedup_ids=list(islice(frame.dedup_ids(), count)),
            origin_ids=list(islice(frame.origin_ids(), count)),
            codec=Codec(header.codec),
            producer=Producer(header.producer_id, header.producer_epoch, header.base_sequence),
            # What is in a log already may be cut, however small the limits are today.
            raw_bytes_max=max(RAW_BYTES_MAX, header.raw_bytes),
        )
    head.header = head.header._replace(flags=header.flags)
    return head.stamped(header.base_offset, header.append_time, header.leader_epoch)


def frame_of(
    raw: bytes,
    *,
    count: int,
    timestamps: tuple[int, int],
    columns: int,
    flags: int = 0,
    codec: AnyCodec = Codec.NONE,
    producer: Producer = ANONYMOUS,
    raw_bytes_max: int = RAW_BYTES_MAX,
) -> Frame:
    """The frame of a raw body, which is believed: whoever made it knows what is in it."""
    if len(raw) > raw_bytes_max:
        raise MessageTooLarge(
            "the batch",
            size_bytes=len(raw),
            limit_bytes=raw_bytes_max,
            setting="frame_raw_bytes_max",
        )
    stored, used = compress(raw, codec)
    header = _header(
        (
            crc32c(stored), len(stored), len(raw), count, 0, 0, *timestamps,
            producer.producer_id, producer.base_sequence, 0, producer.epoch,
            columns, flags, used, VERSION,
        )
    )  # fmt: skip
    return Frame(header, stored, raw_bytes_max)


def _has_any(name: str, column: Sequence[object], count: int) -> bool:
    _check_length(name, column, count)
    return column.count(None) != count


def _has_headers(headers: Sequence[Headers | None] | JoinedHeaders, count: int) -> bool:
    if isinstance(headers, JoinedHeaders):
        return headers.pairs > 0
    _check_length("headers", headers, count)
    return any(headers)


def _check_length(name: str, column: Sequence[object], count: int) -> None:
    length = _length(name, column)
    if length != count:
        raise InvalidRequest(f"{name} must have one item a message: {length} for {count} messages")


def _length(name: str, column: Any) -> int:
    """How many items a column has. It is walked more than once, so an iterator will not do."""
    if type(column) not in _USUAL and (not isinstance(column, Sequence) or isinstance(column, _STRINGS)):
        raise InvalidRequest(f"{name} must be a sequence, like a list, not a {type(column).__name__}")
    return len(column)


def _check_time(timestamp: int) -> None:
    if not -(2**63) <= timestamp < 2**63:
        raise InvalidRequest(f"timestamps must be 64-bit integers (microseconds), not {timestamp}")


def _utf8(column: str, names: Sequence[str | None]) -> list[bytes | None]:
    try:
        return [None if name is None else name.encode() for name in names]
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"a {column} must be a str without lone surrogates: {error}") from error
