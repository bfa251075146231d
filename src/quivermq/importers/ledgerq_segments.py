"""A LedgerQ segment, walked from entry to entry. Behind damage the next whole entry is looked for.

Entries have no mark, so first the length of the damaged one is believed, and where that leads nowhere every
place is tried at which the first bytes make sense.
"""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from quivermq.disk import Disk, File
from quivermq.errors import StorageFailed
from quivermq.importers.files import first_bytes
from quivermq.importers.model import Findings

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
    """The entry at `start`, whose checksum was right, at `position` of its file. Raises UnreadableEntry."""
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


HEADER_BYTES = 64
MAGIC = 0x4C445151
_INDEX_MAGIC = 0x4C445149
# What never changes in a header: all up to when it was made, in nanoseconds.
_CONSTANT_BYTES = 24
_HEADER = Struct("<IHHQqQQ20xI")
_VERSION = 1

_WINDOW_BYTES = 1024 * 1024
# A file that was made to keep us busy has a length everywhere that has to be summed up.
_SEARCH_BYTES_MAX = 4 * 1024**3
_LOOK_BYTES = 4096
# A length below LENGTH_MAX, a type, flags, an id, and a moment after 1970.
_LIKE_AN_ENTRY = re.compile(rb"(?s)(?=.{3}[\x00-\x03][\x01-\x03][\x00-\x1f].{15}[\x00-\x7f])")


def entries(disk: Disk, path: Path, findings: Findings) -> Iterator[Entry]:
    """The whole entries of a segment, in order. Everything else becomes a finding."""
    try:
        file = disk.open(path)
    except (FileNotFoundError, StorageFailed) as error:
        findings.add(path, None, f"it cannot be read: {error}")
        return
    try:
        walk = _Walk(file, findings)
        if walk.has_header():
            yield from walk.entries()
    except StorageFailed as error:
        findings.add(path, None, f"the rest of it cannot be read: {error}")
    finally:
        file.close()


def is_segment(disk: Disk, path: Path) -> bool:
    """Whether a file begins as a segment does. A damaged mark does no harm where an entry follows it."""
    if first_bytes(disk, path, 4) == MAGIC.to_bytes(4, "little"):
        return True
    try:
        file = disk.open(path)
    except (FileNotFoundError, StorageFailed):
        return False
    try:
        return _Walk(file, Findings(0)).begins_with_entry()
    except StorageFailed:
        return False
    finally:
        file.close()


def is_index(disk: Disk, path: Path) -> bool:
    """Whether a file begins as the index of a segment does."""
    return first_bytes(disk, path, 4) == _INDEX_MAGIC.to_bytes(4, "little")


def is_blank(disk: Disk, path: Path) -> bool:
    """Whether a crash left nothing of the header of a segment, or only room for it."""
    return not any(first_bytes(disk, path, HEADER_BYTES))


def marks_of(disk: Disk, path: Path) -> Iterator[tuple[object, ...]]:
    """What never changes in a segment, and is in no other: its header, and the first entry that is whole.

    Either may be damaged one day, and then the other is enough.
    """
    header = first_bytes(disk, path, HEADER_BYTES)
    if len(header) == HEADER_BYTES and _HEADER.unpack(header)[-1] == crc32c(header[:-4]):
        yield ("header", header[:_CONSTANT_BYTES])
    for entry in entries(disk, path, Findings(0)):
        yield ("entry", entry.id, entry.timestamp_ns, entry.headers, entry.payload)
        return


def has_flag(disk: Disk, path: Path, flag: int) -> bool:
    """Whether an entry of a segment has a flag, without a look at more than is needed to tell."""
    try:
        file = disk.open(path)
    except (FileNotFoundError, StorageFailed):
        return False
    try:
        return _Walk(file, Findings(0)).has_flag(flag)
    except (StorageFailed, UnreadableEntry):
        # Whoever reads the entries is told of it.
        return False
    finally:
        file.close()


class _Walk:
    """One way through one file, as long as it was when it was opened. Never mapped: somebody may cut it."""

    def __init__(self, file: File, findings: Findings) -> None:
        self._file = file
        self._path = file.path
        self._findings = findings
        self._size = file.size()
        self._data = b""
        self._start = 0
        self._search_left_bytes = _SEARCH_BYTES_MAX

    def has_header(self) -> bool:
        """Whether the file is one of ours to read. A damaged header is told, and does no harm."""
        header = self._file.read(0, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            problem = f"a segment begins with {HEADER_BYTES} bytes, and the file has {len(header)}"
            self._findings.add(self._path, 0, problem, length=len(header))
            return False
        magic, version, *_, crc = _HEADER.unpack(header)
        if crc != crc32c(header[:-4]):
            # What the entries need is in themselves.
            self._findings.add(
                self._path, 0, "the checksum of the header does not match", length=HEADER_BYTES
            )
        elif magic != MAGIC:
            self._findings.add(self._path, 0, "it does not begin as a segment does", length=self._size)
            return False
        elif version != _VERSION:
            self._findings.add(self._path, 0, f"its version {version} is not known", length=self._size)
            return False
        return True

    def begins_with_entry(self) -> bool:
        """Whether a whole entry stands where the first one should."""
        return self._size > HEADER_BYTES and self._is_entry(HEADER_BYTES)

    def entries(self) -> Iterator[Entry]:
        """The whole ones."""
        position = HEADER_BYTES
        while position < self._size:
            try:
                length = self._whole_length(position)
            except UnreadableEntry as error:
                position = self._behind_damage(position, str(error))
                continue
            try:
                yield parse(self._data, position - self._start, position)
            except UnreadableEntry as error:
                self._findings.add(self._path, position, str(error), length=length + TRAILER_BYTES)
            position += length + TRAILER_BYTES

    def has_flag(self, flag: int) -> bool:
        """Whether an entry has it, believing lengths as long as they lead from one entry to the next."""
        position, size, unpack = HEADER_BYTES, self._size, HEAD.unpack_from
        while position + HEAD.size <= size:
            index = self._hold(position, HEAD.size)
            data = self._data
            end = len(data) - HEAD.size
            while index <= end:
                length, kind, flags, _, _ = unpack(data, index)
                if length < LENGTH_MIN or not DATA <= kind <= CHECKPOINT or flags & ~KNOWN_FLAGS:
                    return self._has_flag_after_all(flag)
                if flags & flag:
                    # A flag may be what is damaged.
                    return self._is_entry(self._start + index) or self._has_flag_after_all(flag)
                index += length + TRAILER_BYTES
            position = self._start + index
        # Without the zeros behind it, the last entry may still be whole.
        return position - size > TRAILER_BYTES and self._has_flag_after_all(flag)

    def _has_flag_after_all(self, flag: int) -> bool:
        """Where lengths cannot be believed, each entry is looked at."""
        return any(entry.flags & flag for entry in self.entries())

    def _whole_length(self, position: int) -> int:
        """The length of the entry there, which is then in memory. Raises UnreadableEntry for a torn one."""
        left = self._size - position
        if left < HEAD.size:
            raise UnreadableEntry(f"the file ends inside of an entry, of which there are {left} bytes")
        index = self._hold(position, HEAD.size)
        length, kind = HEAD.unpack_from(self._data, index)[:2]
        if length < LENGTH_MIN or not DATA <= kind <= CHECKPOINT:
            raise UnreadableEntry("there is no entry here")
        if length > left:
            raise UnreadableEntry(f"an entry has {length} bytes, and the file ends after {left} of them")
        if length > LENGTH_MAX:
            raise UnreadableEntry(f"an entry has {length} bytes, the limit is {LENGTH_MAX}")
        index = self._hold(position, length)
        if not is_whole(self._data, index, length):
            raise UnreadableEntry(
                f"the checksum of entry {HEAD.unpack_from(self._data, index)[3]} does not match"
            )
        return int(length)

    def _hold(self, position: int, length: int) -> int:
        """Have these bytes in `_data`, and return where. Raises UnreadableEntry when they are gone."""
        index = position - self._start
        if index < 0 or index + length > len(self._data):
            self._data = self._file.read(position, min(max(length, _WINDOW_BYTES), self._size - position))
            self._start, index = position, 0
            if len(self._data) < length:
                raise UnreadableEntry("the file was cut while it was read")
        return index

    def _behind_damage(self, position: int, problem: str) -> int:
        """Where to go on behind what is not whole, which is told."""
        found = self._where_it_ends(position)
        if found is None:
            found = self._search(position + 1)
        if self._search_left_bytes < 0:
            problem += "; the search for what is whole behind it was given up"
        end = self._size if found is None else found
        if self._is_zero(position, end):
            problem = f"there are {end - position} zeros"
        self._findings.add(self._path, position, problem, length=end - position)
        return end

    def _where_it_ends(self, position: int) -> int | None:
        """The end of the damaged entry, if another one or the end of the file is there."""
        told = self._file.read(position, 4)
        if len(told) < 4:
            return None
        length = int.from_bytes(told, "little")
        end = position + length + TRAILER_BYTES
        if length < LENGTH_MIN or end > self._size:
            return None
        return end if end == self._size or self._is_entry(end) else None

    def _is_entry(self, position: int) -> bool:
        try:
            self._whole_length(position)
        except UnreadableEntry:
            return False
        return True

    def _search(self, position: int) -> int | None:
        """The first place from `position` on at which a whole entry begins."""
        while position + HEAD.size <= self._size:
            start = position
            data = self._file.read(start, _WINDOW_BYTES)
            if not data:
                # Somebody has cut the file.
                return None
            for match in _LIKE_AN_ENTRY.finditer(data):
                found = start + match.start()
                if self._is_likely(found) and self._is_entry(found):
                    return found
                if self._search_left_bytes < 0:
                    return None
            # The next window begins with what was too short to tell.
            position = start + max(1, len(data) - HEAD.size + 1)
        return None

    def _is_likely(self, position: int) -> bool:
        """Whether an entry there would end inside of the file, with the zeros that belong behind it."""
        head = self._file.read(position, HEAD.size)
        if len(head) < HEAD.size:
            return False
        length, _, _, number, _ = HEAD.unpack(head)
        end = position + length
        if not number or not LENGTH_MIN <= length <= LENGTH_MAX or end > self._size:
            return False
        # To look at a place at all takes as long as to sum up some bytes.
        self._search_left_bytes -= max(length, _LOOK_BYTES)
        return not any(self._file.read(end, min(TRAILER_BYTES, self._size - end)))

    def _is_zero(self, position: int, end: int) -> bool:
        while position < end:
            data = self._file.read(position, min(_WINDOW_BYTES, end - position))
            if not data or data.count(0) < len(data):
                return False
            position += len(data)
        return True
