"""A LedgerQ segment, walked from entry to entry. Behind damage the next whole entry is looked for.

Entries have no mark, so first the length of the damaged one is believed, and where that leads nowhere every
place is tried at which the first bytes make sense.
"""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from struct import error as StructError  # noqa: N812 - It is a class.
from typing import NamedTuple

from crc32c import crc32c

from quivermq.disk import File
from quivermq.errors import StorageFailed
from quivermq.importers.files import SourceFiles, Unreadable
from quivermq.importers.model import Findings, witness
from quivermq.importers.segments import FileWindow

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

    @property
    def expires_at_us(self) -> int | None:
        return None if self.expires_at_ns is None else self.expires_at_ns // 1000


def parse(data: bytes, position: int) -> Entry:
    """The entry, whose checksum was right, at `position` of its file. Raises Unreadable."""
    length, kind, flags, number, timestamp_ns = HEAD.unpack_from(data)
    at, end = HEAD.size, length - _U32.size
    priority, expires_at_ns, compression = 0, None, _NONE
    headers: dict[str, bytes] = {}
    if flags & ~KNOWN_FLAGS:
        raise Unreadable(f"entry {number} has the flags 0x{flags:02x}, and not all of them are known")
    if flags & ENCRYPTED:
        raise Unreadable(f"entry {number} is encrypted")
    try:
        # The checksum is right, so these are the bytes that were written; they may still make no sense.
        if flags & PRIORITY:
            priority, at = data[at], at + 1
        if flags & EXPIRING:
            (expires_at_ns,), at = _I64.unpack_from(data, at), at + _I64.size
        if flags & HEADERS:
            headers, at = _headers(data, at, end)
        if flags & COMPRESSED:
            compression, at = data[at], at + 1
    except (IndexError, StructError):
        at = end + 1
    if at > end:
        raise Unreadable(f"entry {number} is too short for what its flags say")
    return Entry(
        position, length, kind, flags, number, timestamp_ns, priority, expires_at_ns, headers, compression,
        data[at:end],
    )  # fmt: skip


def _headers(data: bytes, at: int, end: int) -> tuple[dict[str, bytes], int]:
    """The headers and where they end. Raises IndexError, or StructError, where they go on behind it."""
    (count,), at = _U16.unpack_from(data, at), at + _U16.size
    texts: list[bytes] = []
    for _ in range(2 * count):
        start = at + _U16.size
        at = start + _U16.unpack_from(data, at)[0]
        if at > end:
            raise IndexError
        texts.append(data[start:at])
    names = (name.decode(errors="backslashreplace") for name in texts[::2])
    return dict(zip(names, texts[1::2], strict=True)), at


def value_of(entry: Entry) -> bytes:
    """The payload as it was before it was compressed. Raises Unreadable."""
    if entry.compression == _NONE:
        return entry.payload
    if entry.compression != _GZIP:
        raise Unreadable(f"entry {entry.id} is compressed in the unknown way {entry.compression}")
    try:
        return gunzip(entry.payload)
    except Unreadable as error:
        raise Unreadable(f"entry {entry.id} cannot be decompressed: {error}") from None


def looks_compressed(payload: bytes) -> bool:
    """Whether it begins as gzip does."""
    return payload.startswith(_GZIP_MARK)


def gunzip(data: bytes) -> bytes:
    """All of a gzip stream, of one or more members. Raises Unreadable, also when it is too large."""
    parts: list[bytes] = []
    left = RAW_BYTES_MAX
    while data:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            part = stream.decompress(data, left + 1)
        except zlib.error as error:
            raise Unreadable(str(error)) from None
        left -= len(part)
        if left < 0:
            raise Unreadable(f"it grows beyond {RAW_BYTES_MAX} bytes")
        if not stream.eof:
            raise Unreadable("it ends too early")
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

# So much is searched at a time.
_SEARCHED_BYTES = 1024 * 1024
# A file that was made to keep us busy has a length everywhere that has to be summed up.
_SEARCH_BYTES_MAX = 4 * 1024**3
_LOOK_BYTES = 4096
# A length below LENGTH_MAX, a type, flags, an id, and a moment after 1970.
_LIKE_AN_ENTRY = re.compile(rb"(?s)(?=.{3}[\x00-\x03][\x01-\x03][\x00-\x1f].{15}[\x00-\x7f])")


def entries(files: SourceFiles, path: Path) -> Iterator[Entry]:
    """The whole entries of a segment, in order. Everything else becomes a finding."""
    try:
        with files.opened(path) as file:
            walk = _Walk(file, files.findings)
            if walk.has_header():
                yield from walk.entries()
    except StorageFailed as error:
        files.report(path, None, f"it cannot be read: {error}")


def is_segment(files: SourceFiles, path: Path) -> bool:
    """Whether a file begins as a segment does. A damaged mark does no harm where an entry follows it."""
    if files.first_bytes(path, 4) == MAGIC.to_bytes(4, "little"):
        return True
    try:
        with files.opened(path) as file:
            return _Walk(file, Findings(0)).is_entry(HEADER_BYTES)
    except StorageFailed:
        return False


def is_index(files: SourceFiles, path: Path) -> bool:
    """Whether a file begins as the index of a segment does."""
    return files.first_bytes(path, 4) == _INDEX_MAGIC.to_bytes(4, "little")


def is_blank(files: SourceFiles, path: Path) -> bool:
    """Whether a crash left nothing of the header of a segment, or only room for it."""
    return not any(files.first_bytes(path, HEADER_BYTES))


def witnesses_of(files: SourceFiles, path: Path) -> Iterator[str]:
    """What never changes in a segment, and is in no other: its header, and the first entry that is whole.

    Either may be damaged one day, and then the other is enough.
    """
    header = files.first_bytes(path, HEADER_BYTES)
    if len(header) == HEADER_BYTES and _HEADER.unpack(header)[-1] == crc32c(header[:-4]):
        yield witness("header", header[:_CONSTANT_BYTES])
    for entry in entries(files.quiet(), path):
        yield witness("entry", entry.id, entry.timestamp_ns, entry.headers, entry.payload)
        return


def has_flag(files: SourceFiles, path: Path, flag: int) -> bool:
    """Whether an entry of a segment has a flag, without a look at more than is needed to tell."""
    try:
        with files.opened(path) as file:
            return _Walk(file, Findings(0)).has_flag(flag)
    except StorageFailed:
        # Whoever reads the entries reports it.
        return False


class _Walk:
    """One way through one file, as long as it was when it was opened."""

    def __init__(self, file: File, findings: Findings) -> None:
        self._path = file.path
        self._findings = findings
        self._window = FileWindow(file, findings)
        self._size = self._window.size
        self._search_left_bytes = _SEARCH_BYTES_MAX

    def has_header(self) -> bool:
        """Whether the file is one of LedgerQ. A damaged header is reported, and does no harm."""
        header = self._window.read(0, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            problem = f"a segment begins with {HEADER_BYTES} bytes, and the file has {len(header)}"
            self._findings.add(self._path, 0, problem, length=len(header))
            return False
        magic, version, *_, crc = _HEADER.unpack(header)
        if crc != crc32c(header[:-4]):
            # What the entries need is in themselves.
            problem = "the checksum of the header does not match"
            self._findings.add(self._path, 0, problem, length=HEADER_BYTES)
            return True
        if magic == MAGIC and version == _VERSION:
            return True
        problem = "it does not begin as a segment does"
        if magic == MAGIC:
            problem = f"its version {version} is not known"
        self._findings.add(self._path, 0, problem, length=self._size)
        return False

    def entries(self) -> Iterator[Entry]:
        """The whole ones."""
        position = HEADER_BYTES
        while position < self._size:
            try:
                data = self._whole_at(position)
            except Unreadable as error:
                position = self._behind_damage(position, str(error))
                continue
            stride = len(data) + TRAILER_BYTES
            try:
                yield parse(data, position)
            except Unreadable as error:
                self._findings.add(self._path, position, str(error), length=stride)
            position += stride

    def has_flag(self, flag: int) -> bool:
        """Whether an entry has it, believing lengths as long as they lead from one entry to the next."""
        position, size, read, unpack = HEADER_BYTES, self._size, self._window.read, HEAD.unpack
        while position + HEAD.size <= size and len(head := read(position, HEAD.size)) == HEAD.size:
            length, kind, flags, _, _ = unpack(head)
            is_likely = length >= LENGTH_MIN and DATA <= kind <= CHECKPOINT and not flags & ~KNOWN_FLAGS
            if not is_likely or flags & flag:
                # A flag may be what is damaged. Where lengths cannot be believed, each entry is looked at.
                is_certain = is_likely and self.is_entry(position)
                return is_certain or any(entry.flags & flag for entry in self.entries())
            position += length + TRAILER_BYTES
        # Without the zeros behind it, the last entry may still be whole.
        return position - size > TRAILER_BYTES and any(entry.flags & flag for entry in self.entries())

    def is_entry(self, position: int) -> bool:
        """Whether a whole entry stands there."""
        try:
            self._whole_at(position)
        except Unreadable:
            return False
        return True

    def _whole_at(self, position: int) -> bytes:
        """The entry there, up to its checksum, which is right. Raises Unreadable."""
        left = self._size - position
        if left < HEAD.size:
            raise Unreadable(f"the file ends inside of an entry, of which there are {left} bytes")
        head = self._window.read(position, HEAD.size)
        if len(head) < HEAD.size:
            raise Unreadable(_CUT)
        length, kind, _, number, _ = HEAD.unpack(head)
        if length < LENGTH_MIN or not DATA <= kind <= CHECKPOINT:
            raise Unreadable("there is no entry here")
        if length > left:
            raise Unreadable(f"an entry has {length} bytes, and the file ends after {left} of them")
        if length > LENGTH_MAX:
            raise Unreadable(f"an entry has {length} bytes, the limit is {LENGTH_MAX}")
        data = self._window.read(position, length)
        if len(data) < length:
            raise Unreadable(_CUT)
        if crc32c(memoryview(data)[:-4]) != _U32.unpack_from(data, length - 4)[0]:
            raise Unreadable(f"the checksum of entry {number} does not match")
        return data

    def _behind_damage(self, position: int, problem: str) -> int:
        """Where to go on behind what is not whole, which is reported."""
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
        length = int.from_bytes(self._window.read(position, 4), "little")
        end = position + length + TRAILER_BYTES
        if length < LENGTH_MIN or end > self._size:
            return None
        return end if end == self._size or self.is_entry(end) else None

    def _search(self, position: int) -> int | None:
        """The first place from `position` on at which a whole entry begins."""
        while position + HEAD.size <= self._size:
            start = position
            data = self._window.fetch(start, min(_SEARCHED_BYTES, self._size - start))
            if not data:
                # Somebody has cut the file.
                return None
            for match in _LIKE_AN_ENTRY.finditer(data):
                found = start + match.start()
                if self._is_likely(found) and self.is_entry(found):
                    return found
                if self._search_left_bytes < 0:
                    return None
            # The next part begins with what was too short to tell.
            position = start + max(1, len(data) - HEAD.size + 1)
        return None

    def _is_likely(self, position: int) -> bool:
        """Whether an entry there would end inside of the file, with the zeros that belong behind it."""
        head = self._window.fetch(position, HEAD.size)
        if len(head) < HEAD.size:
            return False
        length, _, _, number, _ = HEAD.unpack(head)
        end = position + length
        if not number or not LENGTH_MIN <= length <= LENGTH_MAX or end > self._size:
            return False
        # To look at a place at all takes as long as to sum up some bytes.
        self._search_left_bytes -= max(length, _LOOK_BYTES)
        return not any(self._window.fetch(end, min(TRAILER_BYTES, self._size - end)))

    def _is_zero(self, position: int, end: int) -> bool:
        while position < end:
            data = self._window.fetch(position, min(_SEARCHED_BYTES, end - position))
            if not data or data.count(0) < len(data):
                return False
            position += len(data)
        return True


_CUT = "the file was cut while it was read"
