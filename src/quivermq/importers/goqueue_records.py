"""The records of a GoQueue segment: a header of 34 bytes, then key, value and headers.

The checksum covers everything from the offset on, so magic, version and flags can be wrong unnoticed: what
they say is compared with what the rest says.
"""

import zlib
from struct import Struct
from struct import error as StructError  # noqa: N812 - It is a class.
from typing import NamedTuple

from quivermq.importers.segments import RecordHead, RecordLayout, StoredRecord, Unreadable

# Magic, version, flags, CRC32C of everything behind it, offset, timestamp in nanoseconds, priority,
# reserved, and the lengths of key, value and headers.
_HEADER = Struct(">2sBBIqqBBHIH")
_MAGIC, _VERSION = b"GQ", 1
_LENGTH = Struct(">H")
# Producer id, epoch, length of the transaction's id.
_CONTROL = Struct(">QHH")

COMPRESSED, HEADERS, TOMBSTONE, CONTROL, COMMIT = 1, 2, 4, 8, 16
KNOWN_FLAGS = COMPRESSED | HEADERS | TOMBSTONE | CONTROL | COMMIT

# GoQueue takes values of up to 16 MiB. What has more is not read, whatever it says.
_RECORD_BYTES_MAX = 64 * 1024 * 1024
_VALUE_BYTES_MAX = 100 * 1024 * 1024

_GZIP = b"\x1f\x8b"
_GZIP_BITS, _DEFLATE_BITS = 31, -15


class GoRecord(NamedTuple):
    """One record, as it is stored."""

    offset: int
    timestamp_ns: int
    flags: int
    priority: int
    key: bytes | None
    value: bytes
    headers: bytes

    @property
    def is_control(self) -> bool:
        """Whether it only ends a transaction: a flag says so, and its value is as those of such records."""
        if not self.flags & (CONTROL | COMMIT) or len(self.value) < _CONTROL.size:
            return False
        _, _, name_bytes = _CONTROL.unpack_from(self.value)
        return len(self.value) == _CONTROL.size + int(name_bytes)

    @property
    def transaction(self) -> str:
        """Of a control record: which transaction it ends."""
        return self.value[_CONTROL.size :].decode(errors="backslashreplace")


def _parse(header: bytes) -> RecordHead:
    magic, version, _, _, offset, _, _, _, key, value, headers = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise Unreadable("there is no record where one should begin")
    if version != _VERSION:
        raise Unreadable(f"a record has the version {version}, known is {_VERSION}")
    if offset < 0:
        raise Unreadable(f"a record has the offset {offset}")
    return RecordHead(_HEADER.size + key + value + headers, offset, offset + 1)


LAYOUT = RecordLayout(
    noun="record",
    mark=_MAGIC + bytes([_VERSION]),
    header_bytes=_HEADER.size,
    byteorder="big",
    parse=_parse,
    size_bytes_max=_RECORD_BYTES_MAX,
    offsets_max=1,
)


def record_of(stored: StoredRecord) -> GoRecord:
    """The fields of a whole record."""
    data = stored.data
    _, _, flags, _, offset, timestamp, priority, _, key_bytes, value_bytes, _ = _HEADER.unpack_from(data)
    key_end = _HEADER.size + key_bytes
    value_end = key_end + value_bytes
    # GoQueue does not tell an empty key from none.
    key = data[_HEADER.size : key_end] or None
    return GoRecord(offset, timestamp, flags, priority, key, data[key_end:value_end], data[value_end:])


def headers_of(record: GoRecord) -> list[tuple[bytes, bytes]]:
    """The headers in order. Raises Unreadable."""
    data = record.headers
    if not data:
        return []
    try:
        [count] = _LENGTH.unpack_from(data)
        position = _LENGTH.size
        headers = []
        for _ in range(count):
            name, position = _text(data, position)
            content, position = _text(data, position)
            headers.append((name, content))
    except (IndexError, StructError):
        raise Unreadable("its headers are cut off") from None
    if position != len(data):
        raise Unreadable(f"behind its headers there are {len(data) - position} bytes more")
    return headers


def _text(data: bytes, position: int) -> tuple[bytes, int]:
    start = position + _LENGTH.size
    end = start + int.from_bytes(data[position:start], "big")
    if end > len(data):
        raise IndexError
    return data[start:end], end


def decompressed(value: bytes) -> bytes:
    """The contents of a compressed value: gzip, or deflate without a header. Raises Unreadable."""
    is_gzip = value.startswith(_GZIP)
    opened = zlib.decompressobj(_GZIP_BITS if is_gzip else _DEFLATE_BITS)
    try:
        contents = opened.decompress(value, _VALUE_BYTES_MAX)
    except zlib.error as error:
        raise Unreadable(f"it is neither gzip nor deflate: {error}") from None
    if opened.unconsumed_tail:
        raise Unreadable(f"it has more than {_VALUE_BYTES_MAX} bytes when decompressed")
    if not opened.eof or opened.unused_data:
        raise Unreadable("it is neither gzip nor deflate")
    return contents
