"""What the files of a segment are called, and its sparse index: offset and time to a position in the log.

An entry (offset, timestamp, position) says three things about a segment:

- a frame begins at `position`, or will, and its first message has `offset`;
- no message before `position` has a timestamp larger than `timestamp`;
- every byte before `position` was on stable storage when the entry was written to the file.

The last one makes the index the mark from which recovery starts: what lies before it is damaged if
it cannot be read; what lies behind it may be torn. Everything can be rebuilt from the log but this
mark, so a log whose index is gone is judged more carefully, not less.

File: a header and entries of 32 bytes each. The CRC at the end of each covers the file from its first
byte, so checking the last one checks them all, and a torn file still has its longest whole prefix. It is
stored masked: a CRC over bytes and their own plain CRC is always the same number and would remember nothing
of what came before.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from quivermq.disk import Disk, file_size
from quivermq.errors import DiskRefused
from quivermq.frame import Found

MAGIC = b"QVI1"
VERSION = 1
ENTRY_BYTES = 32
TIMESTAMP_NONE = -(2**63)

# magic, version, base offset, 12 zero bytes | offset, timestamp, position, 4 zero bytes
_HEADER = Struct("<4sIq12x")
_ENTRY = Struct("<qqq4x")
_CRC = Struct("<I")

# [0-9] and not \d, which takes the digits of every script. So many, so that names sort as offsets.
_STEM = re.compile(r"[0-9]{20}")
_OFFSET_MAX = 2**63 - 1
# Up to here an index is read whatever its log is like: one that was cut needs its mark the most.
_INDEX_BYTES_SURE = 256 * 1024 * 1024


def log_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


def index_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.idx"


def base_offset_of(name: str, suffix: str = ".log") -> int | None:
    """The base offset of a file's name with that suffix; None for every other name."""
    stem = name.removesuffix(suffix)
    is_offset = stem != name and _STEM.fullmatch(stem) and int(stem) <= _OFFSET_MAX
    return int(stem) if is_offset else None


class SparseIndex:
    """The entries of one segment in memory, and how many of them the file has."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("q")
        self.timestamps = array("q")
        self.positions = array("q")
        self.is_torn = False
        """Whether the file it was read from has something behind its last whole entry."""
        self._encoded = 0
        self._crc = 0

    @classmethod
    def load(cls, data: bytes, base_offset: int) -> "SparseIndex | None":
        """The longest whole prefix of an index file; None when not even its header is right."""
        index = cls(base_offset)
        header = index._seal(_HEADER.pack(MAGIC, VERSION, base_offset))
        if data[:ENTRY_BYTES] != header:
            return None
        end = len(data) - len(data) % ENTRY_BYTES
        if _masked(crc32c(data[: end - 4])) != data[end - 4 : end]:
            end = _whole_prefix(data)
        index.is_torn = end != len(data)
        index._crc = crc32c(data[:end])
        words = array("q", data[ENTRY_BYTES:end])
        index.offsets, index.timestamps, index.positions = words[0::4], words[1::4], words[2::4]
        index._encoded = len(index.offsets)
        return index

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def file_bytes(self) -> int:
        """How long the file is when it has every entry."""
        return ENTRY_BYTES * (1 + len(self))

    @property
    def mark(self) -> tuple[int, int, int]:
        """Offset, timestamp and position of the last entry, or of the segment's beginning."""
        last = len(self) - 1
        if last < 0:
            return self.base_offset, TIMESTAMP_NONE, 0
        return self.offsets[last], self.timestamps[last], self.positions[last]

    def add(self, offset: int, timestamp: int, position: int) -> None:
        """Note a frame's place. Entries are added in order, by one thread, while others look up."""
        if len(self.positions) > len(self.timestamps):
            # The last time was interrupted between two columns.
            del self.positions[len(self) :], self.offsets[len(self) :]
        # A look-up searches one column and reads the columns before it: so they grow in this order.
        self.positions.append(position)
        self.offsets.append(offset)
        self.timestamps.append(timestamp)

    def mark_end(self, offset: int, timestamp: int, position: int) -> None:
        """Let the last entry be the end of the log, unless it is already."""
        if self.mark[2] != position:
            self.add(offset, timestamp, position)

    def cut(self, position: int) -> None:
        """Forget every entry behind `position`. The file must then be written anew."""
        # The shortest column counts: adding may have been interrupted between two of them.
        count = min(bisect_right(self.positions, position), len(self.timestamps))
        del self.offsets[count:], self.timestamps[count:], self.positions[count:]

    def find_offset(self, offset: int) -> tuple[int, int]:
        """Position and first offset of the last noted frame that does not begin behind `offset`."""
        return self._entry(bisect_right(self.offsets, offset) - 1)

    def find_time(self, timestamp: int) -> tuple[int, int]:
        """Position and first offset of a noted frame before which every message is older."""
        return self._entry(bisect_left(self.timestamps, timestamp) - 1)

    def _entry(self, index: int) -> tuple[int, int]:
        return (self.positions[index], self.offsets[index]) if index >= 0 else (0, self.base_offset)

    def entries_behind(self, position: int) -> Iterator[tuple[int, int]]:
        """Position and offset of each entry behind `position`, in order."""
        # Positions grow first: what has no offset yet is not looked at.
        count = len(self.offsets)
        for index in range(bisect_right(self.positions, position, 0, count), count):
            yield self.positions[index], self.offsets[index]

    def encode(self) -> bytes:
        """The whole file."""
        self._encoded = self._crc = 0
        header = self._seal(_HEADER.pack(MAGIC, VERSION, self.base_offset))
        return header + self.encode_more(self.mark[2])

    def encode_more(self, synced_position: int) -> bytes:
        """What to append to the file, now that the log is durable up to `synced_position`."""
        start = self._encoded
        if start == len(self.timestamps):
            return b""
        end = min(bisect_right(self.positions, synced_position), len(self.timestamps))
        self._encoded = max(start, end)
        return b"".join(
            self._seal(_ENTRY.pack(self.offsets[i], self.timestamps[i], self.positions[i]))
            for i in range(start, end)
        )

    def _seal(self, content: bytes) -> bytes:
        sealed = content + _masked(crc32c(content, self._crc))
        self._crc = crc32c(sealed, self._crc)
        return sealed


class Noter:
    """Adds an entry to an index whenever enough bytes have gone by."""

    def __init__(self, index: SparseIndex, interval_bytes: int, timestamp_max: int) -> None:
        self._index = index
        self._interval_bytes = interval_bytes
        self._noted = index.mark[2]
        self.timestamp_max = timestamp_max

    def __call__(self, base_offset: int, timestamp_max: int, position: int) -> None:
        if position - self._noted >= self._interval_bytes:
            self._index.add(base_offset, self.timestamp_max, position)
            self._noted = position
        if timestamp_max > self.timestamp_max:
            self.timestamp_max = timestamp_max

    def cut(self, position: int) -> None:
        """Forget what was noted of frames behind `position`, which are not there after all."""
        self._index.cut(position)
        self._noted = self._index.mark[2]

    def frame(self, found: Found) -> None:
        """Note a frame that a scan has found."""
        header = found.frame.header
        self(header.base_offset, header.timestamp_max, found.position)


def _masked(crc: int) -> bytes:
    """The stored form of a CRC: turned by 15 bits, plus a constant."""
    return _CRC.pack(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _whole_prefix(data: bytes) -> int:
    """The length of the longest prefix in which every CRC is right."""
    crc, end = 0, 0
    while end + ENTRY_BYTES <= len(data):
        entry = data[end : end + ENTRY_BYTES]
        if _masked(crc32c(entry[:-4], crc)) != entry[-4:]:
            break
        crc = crc32c(entry, crc)
        end += ENTRY_BYTES
    return end


def load_index(disk: Disk, directory: Path, base_offset: int) -> SparseIndex | None:
    """The index as its file has it; None when there is none that can be believed."""
    try:
        file = disk.open(index_path(directory, base_offset))
    except FileNotFoundError:
        return None
    with closing(file):
        size = file.size()
        if size > _INDEX_BYTES_SURE:
            # An entry is smaller than the frame that it stands for.
            log_bytes = file_size(disk, log_path(directory, base_offset))
            if size > log_bytes + 2 * ENTRY_BYTES:
                return None
        return SparseIndex.load(file.read(0, size), base_offset)


def write_index(disk: Disk, directory: Path, index: SparseIndex) -> None:
    """Replace an index file in one step. The log is durable up to the index's mark."""
    path = index_path(directory, index.base_offset)
    temporary = path.with_suffix(".tmp")
    with closing(disk.create(temporary)) as file:
        try:
            file.append([index.encode()])
            file.sync()
        except DiskRefused:
            disk.remove(temporary)
            raise
    disk.rename(temporary, path)
    disk.sync_directory(directory)
