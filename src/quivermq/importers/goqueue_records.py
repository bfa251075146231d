"""The records of a GoQueue segment: a header of 34 bytes, then key, value and headers.

The checksum covers everything from the offset on, so magic, version and flags can be wrong unnoticed: what
they say is compared with what the rest says.
"""

import re
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from struct import error as StructError  # noqa: N812 - It is a class.
from typing import Any, NamedTuple, Protocol

from quivermq.disk import Disk, read_file
from quivermq.errors import InvalidRequest
from quivermq.importers.files import SourceFiles, Unreadable, moment_or_none, parse_json
from quivermq.importers.model import Death, Item
from quivermq.importers.segments import RecordHead, RecordLayout, StoredRecord
from quivermq.model.lanes import Priority

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
    suffix=".log",
    beside=(".index", ".timeindex"),
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


# A priority here, and its own name where there are more of them than here.
_PRIORITIES: dict[int, tuple[Priority, str | None]] = {
    0: ("high", "critical"),
    1: ("high", None),
    2: ("normal", None),
    3: ("low", None),
    4: ("low", "background"),
}


def item_of(files: SourceFiles, stored: StoredRecord, record: GoRecord, partition: int) -> Item | None:
    """The message, None where it cannot be made out. What is odd about it is reported."""

    def report(problem: str) -> None:
        problem = f"offset {record.offset} {problem}"
        files.report(stored.path, stored.position, problem, length=len(stored.data))

    for odd in _contradictions(record):
        report(f"is imported, but {odd}")
    for odd in _unknown(record):
        files.report_once(stored.path, stored.position, odd)
    try:
        headers = files.headers(headers_of(record), stored.path, stored.position)
    except Unreadable as error:
        report(f"cannot be read, but its checksum is right: {error}")
        return None
    value = record.value
    if record.flags & COMPRESSED:
        try:
            value = decompressed(value)
        except Unreadable as error:
            # Its bytes are those that were written: better these than none.
            report(f"is imported, but its flags say that it is compressed, and {error}")
    level, own = _PRIORITIES.get(record.priority, _PRIORITIES[2])
    return Item(
        identity=record.offset,
        id=str(record.offset),
        value=value,
        key=record.key,
        headers=headers,
        timestamp_us=record.timestamp_ns // 1000,
        partition=partition,
        level=level,
        priority=own,
    )


def _contradictions(record: GoRecord) -> Iterator[str]:
    """Where flags, which no checksum covers, do not go with the rest."""
    flags = record.flags
    if bool(flags & HEADERS) != bool(record.headers):
        yield "whether it has headers, its flags and its lengths tell differently"
    if flags & (CONTROL | COMMIT):
        yield "its flags say that it ends a transaction, and its value does not"
    if flags & TOMBSTONE and record.value:
        yield "its flags say that it is a tombstone, and it has a value"


def _unknown(record: GoRecord) -> Iterator[str]:
    if flags := record.flags & ~KNOWN_FLAGS:
        yield f"a record has the flags 0x{flags:02x}, which are not known"
    if record.priority not in _PRIORITIES:
        yield f"a record has the priority {record.priority}; it is taken as normal"


_KEY = re.compile(r"[0-9a-fA-F]{64}")
_KEY_FILE_BYTES_MAX = 4096
_NONCE_BYTES, _TAG_BYTES = 12, 16
OVERHEAD_BYTES = _NONCE_BYTES + _TAG_BYTES

LOOKED_AT = 32
"""How many values are enough to tell what they look like."""
_SAMPLE_MIN = 4


class _Opener(Protocol):
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Cipher:
    """Opens values with one key."""

    def __init__(self, key: bytes) -> None:
        # Needed by nobody else, so nobody else has to have it.
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise InvalidRequest(
                "to read encrypted values, install what decrypts them: pip install 'quivermq[encryption]'"
            ) from None
        self._opener: _Opener = AESGCM(key)
        self._wrong = InvalidTag

    def decrypted(self, value: bytes) -> bytes:
        """The contents. Raises Unreadable when the key is another, or when it was never encrypted."""
        if len(value) < OVERHEAD_BYTES:
            raise Unreadable("its value is too short to be encrypted")
        try:
            return self._opener.decrypt(value[:_NONCE_BYTES], value[_NONCE_BYTES:], None)
        except self._wrong:
            raise Unreadable("the key does not open its value") from None

    def opens(self, value: bytes) -> bool:
        """Whether a value was encrypted with the key."""
        try:
            self.decrypted(value)
        except Unreadable:
            return False
        return True


def read_key(given: str, disk: Disk) -> bytes:
    """A key as 64 hex digits, or as @FILE that holds them. Raises InvalidRequest, which never shows it."""
    text = given
    if given.startswith("@"):
        try:
            text = read_file(disk, Path(given[1:]), bytes_max=_KEY_FILE_BYTES_MAX).decode(errors="replace")
        except FileNotFoundError:
            raise InvalidRequest(f"there is no file {given[1:]} with a key") from None
    if not _KEY.fullmatch(text.strip()):
        raise InvalidRequest("a key of GoQueue is 64 hex digits, or @FILE with them")
    return bytes.fromhex(text.strip())


def look_encrypted(values: Sequence[bytes]) -> bool:
    """Whether values could be encrypted: each has room for nonce and tag, and nothing in them repeats."""
    sample = b"".join(values)
    if len(values) < _SAMPLE_MIN or min(map(len, values)) < OVERHEAD_BYTES:
        return False
    return len(zlib.compress(sample, 9)) >= len(sample)


def open_letter(item: Item) -> None:
    """Make an item of a dead-letter topic the dead letter that its value describes. Raises ValueError."""
    letter = parse_json(item.value)
    if not isinstance(letter, dict) or not isinstance(letter.get("original_topic"), str):
        raise ValueError("it does not say of which topic it is")
    value, key = _bytes(letter, "original_value"), _bytes(letter, "original_key")
    offset = _number(letter, "original_offset")
    item.dead = Death(
        original_id=None if offset is None else str(offset),
        partition=_number(letter, "original_partition"),
        offset=offset,
        attempts=_number(letter, "delivery_attempts"),
        reason=_text_or_none(letter, "reason"),
        error=_text_or_none(letter, "last_error"),
        group=_text_or_none(letter, "last_group"),
        time_us=_moment(letter, "dlq_time"),
    )
    item.value, item.key = value or b"", key or None
    timestamp_us = _moment(letter, "original_timestamp")
    item.timestamp_us = item.timestamp_us if timestamp_us is None else timestamp_us


def _bytes(letter: Mapping[str, Any], name: str) -> bytes | None:
    given = letter.get(name)
    if given is None:
        return None
    if not isinstance(given, str):
        raise ValueError(f"its {name} is no text")
    return b64decode(given, validate=True)


def _number(letter: Mapping[str, Any], name: str) -> int | None:
    given = letter.get(name)
    return given if type(given) is int and 0 <= given < 2**63 else None


def _text_or_none(letter: Mapping[str, Any], name: str) -> str | None:
    given = letter.get(name)
    # JSON can say half a character, which nobody could store.
    return given.encode(errors="backslashreplace").decode() if isinstance(given, str) and given else None


# In microseconds from 1970.
_YEAR_2_US = -62_104_060_800_000_000


def _moment(letter: Mapping[str, Any], name: str) -> int | None:
    """None also for the beginning of the year 1, which is what Go writes for no time at all."""
    moment_us = moment_or_none(letter.get(name))
    return None if moment_us is None or moment_us <= _YEAR_2_US else moment_us
