"""An entry of a LedgerQ segment: its bytes, little-endian, and what they mean. Pure.

    length u32 | type u8 | flags u8 | id u64 | timestamp i64 ns | [priority u8] | [expires at i64 ns]
    | [headers: count u16, (length u16, name, length u16, value)*] | [compression u8] | payload
    | crc u32 | 0 u32

The length counts itself but not the zeros at the end. The CRC32C covers everything before it.
"""

import zlib
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

LENGTH_MIN = 26
# Far more than LedgerQ lets a message have by default, and as much as one of ours may ever have.
LENGTH_MAX = 64 * 1024 * 1024
RAW_BYTES_MAX = 100 * 1024 * 1024
TRAILER_BYTES = 4

DATA, TOMBSTONE, CHECKPOINT = 1, 2, 3
COMPRESSED, ENCRYPTED, EXPIRING, HEADERS, PRIORITY = 0x01, 0x02, 0x04, 0x08, 0x10

HEAD = Struct("<IBBQq")
_U16, _U32, _I64 = Struct("<H"), Struct("<I"), Struct("<q")
_NONE, _GZIP = 0, 1
KNOWN_FLAGS = COMPRESSED | ENCRYPTED | EXPIRING | HEADERS | PRIORITY
_GZIP_MARK = b"\x1f\x8b\x08"


class UnreadableEntry(Exception):
    """Why an entry cannot be had."""


class Entry(NamedTuple):
    """An entry that is whole. Its payload is as it is stored."""

    position: int
    length: int
    type: int
    flags: int
    id: int
    timestamp_ns: int
    priority: int
    expires_at_ns: int | None
    headers: dict[str, bytes]
    compression: int
    payload: bytes

    @property
    def end(self) -> int:
        """Where the next entry begins."""
        return self.position + self.length + TRAILER_BYTES


def is_whole(data: bytes, start: int, length: int) -> bool:
    """Whether the checksum of the entry that begins at `start` is right."""
    crc_at = start + length - 4
    return bool(crc32c(memoryview(data)[start:crc_at]) == _U32.unpack_from(data, crc_at)[0])


def parse(data: bytes, start: int, position: int) -> Entry:
    """The entry at `start`, whose checksum was right, from `position` of its file. Raises UnreadableEntry."""
    length, kind, flags, number, timestamp_ns = HEAD.unpack_from(data, start)
    if not flags:
        payload = data[start + HEAD.size : start + length - 4]
        return Entry(position, length, kind, 0, number, timestamp_ns, 0, None, {}, _NONE, payload)
    if flags & ~KNOWN_FLAGS:
        raise UnreadableEntry(f"entry {number} has the flags 0x{flags:02x}, and not all of them are known")
    if flags & ENCRYPTED:
        raise UnreadableEntry(f"entry {number} is encrypted")
    return _parse_more(data, start, position)


def _parse_more(data: bytes, start: int, position: int) -> Entry:
    length, kind, flags, number, timestamp_ns = HEAD.unpack_from(data, start)
    at, end = start + HEAD.size, start + length - 4
    priority, expires_at_ns, compression = 0, None, _NONE
    headers: dict[str, bytes] = {}
    # The checksum is right, so these are the bytes that were written; they may still make no sense.
    if flags & PRIORITY:
        _check_room(number, at + 1, end)
        priority, at = data[at], at + 1
    if flags & EXPIRING:
        _check_room(number, at + 8, end)
        (expires_at_ns,), at = _I64.unpack_from(data, at), at + 8
    if flags & HEADERS:
        headers, at = _headers(number, data, at, end)
    if flags & COMPRESSED:
        _check_room(number, at + 1, end)
        compression, at = data[at], at + 1
    payload = data[at:end]
    return Entry(
        position, length, kind, flags, number, timestamp_ns, priority, expires_at_ns, headers, compression,
        payload,
    )  # fmt: skip


def _headers(number: int, data: bytes, at: int, end: int) -> tuple[dict[str, bytes], int]:
    _check_room(number, at + 2, end)
    (count,), at = _U16.unpack_from(data, at), at + 2
    headers: dict[str, bytes] = {}
    for _ in range(count):
        name, at = _text(number, data, at, end)
        value, at = _text(number, data, at, end)
        headers[name.decode(errors="backslashreplace")] = value
    return headers, at


def _text(number: int, data: bytes, at: int, end: int) -> tuple[bytes, int]:
    _check_room(number, at + 2, end)
    (length,), at = _U16.unpack_from(data, at), at + 2
    _check_room(number, at + length, end)
    return data[at : at + length], at + length


def _check_room(number: int, needed: int, end: int) -> None:
    if needed > end:
        raise UnreadableEntry(f"entry {number} is too short for what its flags say")


def value_of(entry: Entry) -> bytes:
    """The payload as it was before it was compressed. Raises UnreadableEntry."""
    if entry.compression == _NONE:
        return entry.payload
    if entry.compression != _GZIP:
        raise UnreadableEntry(f"entry {entry.id} is compressed in the unknown way {entry.compression}")
    try:
        return gunzip(entry.payload)
    except UnreadableEntry as error:
        raise UnreadableEntry(f"entry {entry.id} cannot be decompressed: {error}") from None


def looks_compressed(payload: bytes) -> bool:
    """Whether it begins as gzip does."""
    return payload.startswith(_GZIP_MARK)


def gunzip(data: bytes) -> bytes:
    """All of a gzip stream, of one or more members. Raises UnreadableEntry, also when it is too large."""
    parts: list[bytes] = []
    left = RAW_BYTES_MAX
    while data:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            part = stream.decompress(data, left + 1)
        except zlib.error as error:
            raise UnreadableEntry(str(error)) from None
        left -= len(part)
        if left < 0:
            raise UnreadableEntry(f"it grows beyond {RAW_BYTES_MAX} bytes")
        if not stream.eof:
            raise UnreadableEntry("it ends too early")
        parts.append(part)
        data = stream.unused_data
    return b"".join(parts)
