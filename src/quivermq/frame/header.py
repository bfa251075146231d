"""The 80 bytes in front of every frame.

The layout is the code; docs/reference/format.md explains it and has test vectors. The header's CRC
covers everything behind it up to the body (bytes 8 to 80) and the body's CRC covers the stored body,
so the log can stamp an offset without reading a single message.
"""

from enum import IntEnum
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, UnsupportedFrame

MAGIC = b"QVF1"
VERSION = 1
HEADER_BYTES = 80
OFFSET_MAX = 2**63 - 1

# magic, header crc | body crc, stored bytes, raw bytes, count | base offset, append time,
# timestamp min, timestamp max | producer id | base sequence, leader epoch |
# producer epoch, columns, flags | codec, version. Every field is aligned to its own size.
LAYOUT = Struct("<4sI IIII qqqq Q II HHH BB")
_pack_behind_crc = Struct("<IIII qqqq Q II HHH BB").pack
_pack_magic_and_crc = Struct("<4sI").pack

# Encryption at rest puts a nonce before and a tag behind the sealed body.
NONCE_BYTES = 12
TAG_BYTES = 16


# The masks are plain numbers: an IntFlag would make every `&` of the hot path a call in Python.


class Column:
    """Which columns the body has: one bit each, in the order in which they are stored."""

    VALUE: Final = 1
    KEY: Final = 2
    HEADERS: Final = 4
    TIMESTAMP: Final = 8
    EXPIRES_AT: Final = 16
    DEDUP_ID: Final = 32
    ORIGIN_ID: Final = 64
    """What messages were called where they were before they came here: only the queue says this."""


class Flag:
    """What is special about the frame as a whole: one bit each."""

    ENCRYPTED: Final = 1
    TRANSACTIONAL: Final = 2
    CONTROL: Final = 4
    DEAD_LETTERS: Final = 8
    """The messages were given up, and their `quiver-dlq-` headers are true: only the queue says this."""


class Codec(IntEnum):
    """How the stored body was made from the raw one."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2
    GZIP = 3


_COLUMNS_UNKNOWN = ~0b1111111
_FLAGS_UNKNOWN = ~0b1111
_CODEC_MAX = int(max(Codec))
_CODEC_NONE = int(Codec.NONE)


class Header(NamedTuple):
    """The fields of a header in stored order. Times are unix microseconds.

    The producer fills in everything but `base_offset`, `append_time` and `leader_epoch`, which
    belong to the log. A frame without a timestamp column has one timestamp for all its messages:
    then `timestamp_min` equals `timestamp_max`.
    """

    body_crc: int
    stored_bytes: int
    raw_bytes: int
    message_count: int
    base_offset: int
    append_time: int
    timestamp_min: int
    timestamp_max: int
    producer_id: int
    base_sequence: int
    leader_epoch: int
    producer_epoch: int
    columns: int
    flags: int
    codec: int
    version: int

    @property
    def end_offset(self) -> int:
        """The offset behind the last message."""
        return self.base_offset + self.message_count

    @property
    def frame_bytes(self) -> int:
        """The length of the whole frame: header, stored body, padding."""
        return HEADER_BYTES + padded(self.stored_bytes)

    def stamped(self, base_offset: int, append_time: int, leader_epoch: int) -> "Header":
        """The same header at its place in a log."""
        return self._replace(base_offset=base_offset, append_time=append_time, leader_epoch=leader_epoch)

    def pack(self) -> bytes:
        """The 80 bytes."""
        return self.pack_at(self.base_offset, self.append_time, self.leader_epoch)

    def pack_at(self, base_offset: int, append_time: int, leader_epoch: int) -> bytes:
        """The 80 bytes as they stand at another place: stamping, without a header in between."""
        return packed(*self[:4], base_offset, append_time, *self[6:10], leader_epoch, *self[11:])


def packed(*fields: int) -> bytes:
    """The 80 bytes of a header that has these fields."""
    behind = _pack_behind_crc(*fields)
    return _pack_magic_and_crc(MAGIC, crc32c(behind)) + behind


def packed_alone(
    body_crc: int,
    stored_bytes: int,
    raw_bytes: int,
    base_offset: int,
    append_time: int,
    timestamp: int,
    columns: int,
    codec: int,
) -> bytes:
    """The same of a frame of one message, from nobody in particular: without a detour, for single puts."""
    behind = _pack_behind_crc(
        body_crc, stored_bytes, raw_bytes, 1, base_offset, append_time, timestamp, timestamp,
        0, 0, 0, 0, columns, 0, codec, VERSION,
    )  # fmt: skip
    return _pack_magic_and_crc(MAGIC, crc32c(behind)) + behind


_header = partial(tuple.__new__, Header)


def padded(length: int) -> int:
    """`length` rounded up to the next multiple of 8."""
    return (length + 7) & -8


def parse_header(buffer: Buffer, position: int = 0) -> Header:
    """The header at `position`, with every claim checked that can be checked without the body.

    Raises InvalidFrame. A header that was returned here may be trusted in its lengths.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise InvalidFrame(
            f"a header has {HEADER_BYTES} bytes, only {len(buffer) - position} are left",
            position=position,
        )
    fields = LAYOUT.unpack_from(buffer, position)
    magic, header_crc = fields[:2]
    if magic != MAGIC:
        raise InvalidFrame(f"a frame begins with {MAGIC!r}, not {magic!r}", position=position)
    if crc32c(memoryview(buffer)[position + 8 : position + HEADER_BYTES]) != header_crc:
        raise InvalidFrame("the header's checksum does not match", position=position)
    header = _header(fields[2:])
    if reason := _novelty(header):
        raise UnsupportedFrame(reason, position=position)
    if reason := _contradiction(header):
        raise InvalidFrame(reason, position=position)
    return header


def _novelty(header: Header) -> str | None:
    """What this release does not know. Damage it is not: the checksum is right."""
    if header.version != VERSION:
        return f"the frame has version {header.version}, this release knows version {VERSION}"
    if header.codec > _CODEC_MAX:
        return f"codec {header.codec} is not known to this release"
    if header.flags & _FLAGS_UNKNOWN:
        return f"flags {header.flags:#x} are not all known to this release"
    if header.columns & _COLUMNS_UNKNOWN:
        return f"columns {header.columns:#x} are not all known to this release"
    return None


def _contradiction(header: Header) -> str | None:
    """What is wrong with a header whose checksum is right; it may still come from an enemy."""
    if not 0 <= header.base_offset <= OFFSET_MAX - header.message_count:
        return f"base offset {header.base_offset} is out of range"
    if header.timestamp_min > header.timestamp_max:
        return "the smallest timestamp is larger than the largest"
    return _contradiction_of_lengths(header)


def _contradiction_of_lengths(header: Header) -> str | None:
    if header.message_count == 0:
        return "a frame has at least one message"
    if header.flags & Flag.CONTROL:
        if header.columns:
            return "a control frame has no columns"
    elif not header.columns & Column.VALUE:
        return "the value column is missing"
    elif header.raw_bytes < 4 * (header.message_count + 1):
        return f"{header.message_count} messages cannot fit into {header.raw_bytes} bytes"
    if header.codec == _CODEC_NONE:
        sealing = NONCE_BYTES + TAG_BYTES if header.flags & Flag.ENCRYPTED else 0
        if header.stored_bytes != header.raw_bytes + sealing:
            return "without a codec, the stored body must be as long as the raw one"
    return None
