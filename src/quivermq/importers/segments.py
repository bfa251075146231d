"""Records that stand behind each other in files, each with a mark, a length and a CRC32C of its own.

Whole ones come out in the order of their offsets. Behind damage the next whole one is looked for: where the
damaged one says that it ends, and otherwise by the mark. What lies between is one finding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from crc32c import crc32c

from quivermq.disk import File
from quivermq.errors import StorageFailed
from quivermq.importers.files import SourceFiles, Unreadable
from quivermq.importers.model import Findings, SourceTopic, witness

_WINDOW_BYTES = 1024 * 1024
_BLOCK_BYTES = 4096


class FileWindow:
    """A file as it was when it was opened, read through a buffer. Never mapped: somebody may cut it.

    What the disk does not give is zeros, and a finding.
    """

    def __init__(self, file: File, findings: Findings) -> None:
        self._file = file
        self._findings = findings
        self._bad_blocks: set[int] = set()
        self.size = file.size()
        self._start = 0
        self._held = b""

    def read(self, position: int, length: int) -> bytes:
        """So many bytes, or fewer where the file ends."""
        first = position - self._start
        if 0 <= first <= len(self._held) - length:
            return self._held[first : first + length]
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        if length > _WINDOW_BYTES:
            return self.fetch(position, length)
        self._held = self.fetch(position, min(_WINDOW_BYTES, self.size - position))
        self._start = position
        return self._held[:length]

    def fetch(self, position: int, length: int) -> bytes:
        """The same past the buffer."""
        try:
            return self._file.read(position, length)
        except StorageFailed:
            # Block by block, because most of them can still be read.
            return b"".join(
                self._fetch_block(each, min(_BLOCK_BYTES - each % _BLOCK_BYTES, position + length - each))
                for each in self._blocks(position, position + length)
            )

    def _blocks(self, start: int, end: int) -> Iterator[int]:
        yield start
        yield from range(start - start % _BLOCK_BYTES + _BLOCK_BYTES, end, _BLOCK_BYTES)

    def _fetch_block(self, position: int, length: int) -> bytes:
        try:
            return self._file.read(position, length)
        except StorageFailed as error:
            block = position // _BLOCK_BYTES
            if block not in self._bad_blocks:
                self._bad_blocks.add(block)
                self._findings.add(self._file.path, position, str(error), length=length)
            return bytes(length)

    def find(self, mark: bytes, position: int) -> int | None:
        """Where the mark stands next, at `position` or behind it."""
        while position + len(mark) <= self.size:
            first = position - self._start
            if not 0 <= first <= len(self._held) - len(mark):
                # Shorter than it was: somebody cut it.
                if len(self.read(position, _WINDOW_BYTES)) < len(mark):
                    return None
                first = position - self._start
            if (found := self._held.find(mark, first)) >= 0:
                return self._start + found
            position = self._start + len(self._held) - len(mark) + 1
        return None


_CRC_START, _CRC_END = 4, 8
# A file made to keep us busy has a mark everywhere, each with a length that has to be summed up. To look at
# a mark at all takes as long as to sum up some bytes.
_SEARCH_BYTES_MAX = 4 * 1024**3
_SEARCH_BYTES_MIN = 4096


class RecordHead(NamedTuple):
    """What the header of a record says."""

    size_bytes: int
    """All of it, with the header."""
    offset: int
    """The first offset it holds, and the one behind the last."""
    end: int


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """How the segments of a format and the records in them look."""

    suffix: str
    """How the name of a segment ends."""
    beside: tuple[str, ...]
    """How those of files end that know nothing which the segments do not."""
    noun: str
    mark: bytes
    """What a record begins with."""
    header_bytes: int
    byteorder: Literal["little", "big"]
    parse: Callable[[bytes], RecordHead]
    """The head out of the header's bytes. Raises Unreadable."""
    size_bytes_max: int
    offsets_max: int
    """How many offsets a record can hold."""


class StoredRecord(NamedTuple):
    """A whole record: its checksum is right."""

    path: Path
    position: int
    head: RecordHead
    data: bytes


def whole_records(
    files: SourceFiles, directory: Path, layout: RecordLayout
) -> Iterator[tuple[StoredRecord, int]]:
    """The whole records of a directory in order, each with the first of its offsets that is new.

    Everything else, and every hole in the offsets, becomes a finding.
    """
    expected: int | None = None
    for segment in files.only_segments(directory, layout.suffix, layout.beside):
        try:
            with files.opened(segment.path) as file:
                scan = _Scan(file, layout, files.findings, segment.base, expected)
                yield from scan.records()
                expected = scan.expected
        except StorageFailed as error:
            files.report(segment.path, None, f"it cannot be read: {error}")


class SegmentedTopic(SourceTopic):
    """A topic whose messages are records in directories of segments."""

    def __init__(self, files: SourceFiles, name: str, layout: RecordLayout) -> None:
        self.name = name
        self._files = files
        self._layout = layout

    def _directories(self) -> Mapping[tuple[object, ...], Path]:
        """All of them, by what tells one from the others wherever a copy of the source lies."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        files, suffix = self._files.quiet(), self._layout.suffix
        segments = (each for path in self._directories().values() for each in files.segments(path, suffix))
        return sum(files.size(segment.path) for segment in segments)

    @property
    def witnesses(self) -> Sequence[str]:
        """Of each segment its place, its offset, and the header of its first record."""
        files, length = self._files.quiet(), self._layout.header_bytes
        found = []
        for place, path in self._directories().items():
            for segment in files.segments(path, self._layout.suffix):
                head = files.first_bytes(segment.path, length)
                if len(head) == length:
                    found.append(witness(*place, segment.base, head))
        return found


class _Scan:
    """One walk over one file."""

    def __init__(
        self, file: File, layout: RecordLayout, findings: Findings, base: int, expected: int | None
    ) -> None:
        self._path = file.path
        self._window = FileWindow(file, findings)
        self._layout = layout
        self._findings = findings
        self._base = base
        self._search_left_bytes = _SEARCH_BYTES_MAX
        # The first and the last of offsets that were there before, and where that began.
        self._again: tuple[int, int, int] | None = None
        self.expected = base if expected is None else expected
        """The offset that should come next."""

    def records(self) -> Iterator[tuple[StoredRecord, int]]:
        position = 0
        while position < self._window.size:
            try:
                stored = self._whole_at(position)
            except Unreadable as error:
                behind = self._behind_damage(position, str(error))
                if behind is None:
                    break
                stored = behind
            if stored.head.offset > self.expected:
                hole = _offsets(self.expected, stored.head.offset)
                self._findings.add(self._path, stored.position, f"{hole} missing in front of this place")
            position = stored.position + stored.head.size_bytes
            first = max(stored.head.offset, self.expected)
            if stored.head.offset < first:
                self._count_again(stored.position, stored.head.offset, min(first, stored.head.end))
            if first < stored.head.end:
                self._report_again()
                self.expected = stored.head.end
                yield stored, first
        self._report_again()
        if self.expected < self._base:
            # Nothing in it is whole, but its name says what came before.
            self._findings.add(self._path, None, f"{_offsets(self.expected, self._base)} missing")
            self.expected = self._base

    def _head_at(self, position: int) -> RecordHead:
        layout = self._layout
        header = self._window.read(position, layout.header_bytes)
        if len(header) < layout.header_bytes:
            raise Unreadable(f"the file ends inside of the header of a {layout.noun}")
        head = layout.parse(header)
        if head.size_bytes > self._window.size - position:
            raise Unreadable(
                f"a {layout.noun} has {head.size_bytes} bytes, and the file ends behind"
                f" {self._window.size - position}"
            )
        if head.size_bytes > layout.size_bytes_max:
            raise Unreadable(
                f"a {layout.noun} has {head.size_bytes} bytes, the limit is {layout.size_bytes_max}"
            )
        return head

    def _whole_at(self, position: int) -> StoredRecord:
        head = self._head_at(position)
        data = self._window.read(position, head.size_bytes)
        if len(data) < head.size_bytes:
            raise Unreadable("the file was cut while it was read")
        crc = int.from_bytes(data[_CRC_START:_CRC_END], self._layout.byteorder)
        if crc32c(memoryview(data)[_CRC_END:]) != crc:
            raise Unreadable(f"the checksum of a {self._layout.noun} does not match")
        return StoredRecord(self._path, position, head, data)

    def _behind_damage(self, position: int, problem: str) -> StoredRecord | None:
        """The next whole record; what is lost before it becomes a finding."""
        stored = self._where_it_ends(position)
        if stored is None and not self._is_last(position):
            stored = self._search(position + 1, self._follows(position)) or self._search(
                position + 1, lambda _position, _head: True
            )
        end = self._window.size if stored is None else stored.position
        lost = ""
        if stored is not None:
            lost = lost_offsets(self.expected, stored.head.offset)
            self.expected = max(self.expected, stored.head.offset)
        elif self._search_left_bytes < 0:
            lost = "; the search for what is whole behind it was given up"
        self._findings.add(self._path, position, problem + lost, length=end - position)
        return stored

    def _where_it_ends(self, position: int) -> StoredRecord | None:
        """The record behind the damaged one, if its length is right and only its contents are not.

        Asked first, because a message may hold what looks like a record.
        """
        try:
            end = position + self._head_at(position).size_bytes
            stored = self._whole_at(end)
        except Unreadable:
            return None
        return stored if self._follows(position)(end, stored.head) else None

    def _is_last(self, position: int) -> bool:
        try:
            return position + self._head_at(position).size_bytes == self._window.size
        except Unreadable:
            return False

    def _follows(self, position: int) -> Callable[[int, RecordHead], bool]:
        """Whether a record is one of those that come next, by how many the bytes between could hold."""
        layout, lowest = self._layout, self.expected
        highest = max(self.expected, self._base)

        def is_near(candidate: int, head: RecordHead) -> bool:
            held = (candidate - position) // layout.header_bytes + 1
            return lowest <= head.offset <= highest + held * layout.offsets_max

        return is_near

    def _search(self, position: int, is_wanted: Callable[[int, RecordHead], bool]) -> StoredRecord | None:
        while (found := self._window.find(self._layout.mark, position)) is not None:
            position = found + 1
            self._search_left_bytes -= _SEARCH_BYTES_MIN
            if self._search_left_bytes < 0:
                return None
            try:
                head = self._head_at(found)
                if is_wanted(found, head):
                    self._search_left_bytes -= head.size_bytes
                    return self._whole_at(found)
            except Unreadable:
                continue
        return None

    def _count_again(self, position: int, first: int, end: int) -> None:
        if self._again is not None:
            position, first, _ = self._again
        self._again = (position, first, end)

    def _report_again(self) -> None:
        if self._again is not None:
            position, first, end = self._again
            problem = f"{_offsets(first, end)} here again; the first ones were taken"
            self._findings.add(self._path, position, problem)
            self._again = None


def lost_offsets(start: int, end: int) -> str:
    """The end of a sentence that says which offsets are lost, if any."""
    return f"; {_offsets(start, end)} lost" if start < end else ""


def _offsets(start: int, end: int) -> str:
    """A half-open range for a sentence."""
    return f"offset {start} is" if end == start + 1 else f"offsets {start} to {end - 1} are"
