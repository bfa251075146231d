"""One log file and its index, as a reader sees them.

A sealed segment never changes; the active one grows behind `end`, which its writer moves. Bytes are
read with `pread`, because an unreadable sector is then an error and not the end of the process; only
for Arrow they are mapped. That is safe from cutting, because no log file ever gets shorter than what it
once held in whole frames.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from quivermq.disk import Disk, File
from quivermq.errors import Corruption, InvalidFrame, UnsupportedFrame
from quivermq.frame import Frame
from quivermq.segment.index import (
    TIMESTAMP_NONE,
    Noter,
    SparseIndex,
    load_index,
    log_path,
)
from quivermq.segment.scan import Damage, Found, FrameScan, MappedFile, ScannedFile
from quivermq.settings import StorageSettings


class Segment:
    """The frames of offsets [base_offset, end_offset), in the bytes [0, end) of a file.

    Only an active segment is given its index and its largest timestamp: whoever makes it grow keeps
    them up to date.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        base_offset: int,
        settings: StorageSettings,
        *,
        end_offset: int,
        end: int,
        index: SparseIndex | None = None,
        timestamp_max: int = TIMESTAMP_NONE,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.settings = settings
        self.end_offset = end_offset
        self.end = end
        self.timestamp_max = timestamp_max
        self.path = log_path(directory, base_offset)
        self.is_active = index is not None
        self._index = index
        # A position at which a frame begins, or will, and its offset: where somebody stopped reading.
        self._read_to = (0, base_offset)

    @property
    def messages(self) -> int:
        """How many offsets the segment holds."""
        return self.end_offset - self.base_offset

    @property
    def index(self) -> SparseIndex:
        """The index, read from its file, or made from the log where that is missing, short or wrong."""
        # Kept in a variable, because another thread may forget it in between.
        index = self._index
        if index is None:
            index = load_index(self.disk, self.directory, self.base_offset)
            if index is None or index.mark[0] != self.end_offset or index.mark[2] != self.end:
                index = self._rebuilt_index()
            self._index = index
        return index

    def forget_index(self) -> None:
        """Free the memory. The active segment's index is not a copy of a file and stays."""
        if not self.is_active:
            self._index = None

    def frames(self, start: int, *, mapped: bool = False) -> Iterator[tuple[int, Frame]]:
        """The frames from the one that holds offset `start` on, each with its position.

        Raises Corruption at the first that is damaged, and when the file ends before the segment.
        """
        end_offset, last = self.end_offset, None
        file = self.disk.open(self.path)
        try:
            scan = self._scan(_mapped(file, self.end) if mapped else file, self.index)
            offset, steps = self._steps(scan, start)
            for found in steps:
                if isinstance(found, Damage):
                    raise self.corruption(found)
                last = found
                yield found
            if last is not None:
                offset = last.frame.header.end_offset
            if start < end_offset and offset < end_offset:
                missing = (max(offset, start), end_offset)
                reason = "the file ends before the segment does"
                raise self.corruption(Damage(self.end, self.end, missing, reason))
        finally:
            if last is not None:
                self._read_to = last.end, last.frame.header.end_offset
            file.close()

    def _steps(self, scan: FrameScan, start: int) -> tuple[int, Iterator[Found | Damage]]:
        """An offset not behind `start` at which a frame begins, and what the scan finds from `start` on."""
        place, read_to = self.index.find_offset(start), self._read_to
        # Whoever reads little by little goes on where the last one stopped, which is nearer.
        near = read_to if place[1] < read_to[1] <= start else place
        steps = scan.frames(*near, skip_to_offset=start)
        first = next(steps, None)
        if isinstance(first, Found):
            return near[1], chain((first,), steps)
        # Nothing is there, or damage: then nobody is believed who may have sent us to a wrong place.
        if not scan.begins(*place):
            # The index file was whole but about another log: an old copy, perhaps.
            self._index = self._rebuilt_index()
            place = self.index.find_offset(start)
        return place[1], scan.frames(*place, skip_to_offset=start)

    def grow(self) -> bool:
        """Take in what another process has appended. False when what lies there does not follow on."""
        index = self.index
        note = Noter(index, self.settings.index_interval_bytes, self.timestamp_max)
        file = self.disk.open(self.path)
        try:
            scan = FrameScan(file, raw_bytes_max=self.settings.frame_raw_bytes_max)
            for found in scan.frames(self.end, self.end_offset):
                if isinstance(found, Damage):
                    return False
                note.frame(found)
                self.timestamp_max = note.timestamp_max
                self.end, self.end_offset = found.end, found.frame.header.end_offset
            return file.size() >= self.end
        finally:
            file.close()

    def find_time(self, timestamp: int) -> int | None:
        """The first offset whose message is not older than `timestamp`; None when all are."""
        _, offset = self.index.find_time(timestamp)
        for _, frame in self.frames(offset):
            if frame.header.timestamp_max < timestamp or frame.is_control:
                continue
            stamps = list(frame.timestamps())
            place = next(i for i, stamp in enumerate(stamps) if stamp >= timestamp)
            return frame.header.base_offset + place
        return None

    def first_append_time(self) -> int | None:
        """When the oldest frame came in; None for an empty segment, and when it cannot be read."""
        return self._append_time_of(self.base_offset)

    def last_append_time(self) -> int | None:
        """When the newest frame came in; None for an empty segment, and when it cannot be read."""
        return self._append_time_of(self.end_offset - 1)

    def examine(self, index: SparseIndex | None = None, *, deep: bool = True) -> Iterator[Found | Damage]:
        """Every byte of the segment, whole or not, and the inside of every frame.

        `index`, as its file has it, helps to find the next frame behind damage. Without `deep`, checksums
        answer for the inside of the frames, which was looked at when they came in.
        """
        file = self.disk.open(self.path)
        try:
            for found in self._scan(file, index).frames(0, self.base_offset):
                yield self._examined(found) if deep and isinstance(found, Found) else found
        finally:
            file.close()

    def corruption(self, damage: Damage) -> Corruption:
        """The error for damage in this segment. A range that runs to the end ends with the segment."""
        start, end = damage.offsets
        return Corruption(
            damage.reason,
            path=self.path,
            position=damage.position,
            offsets=(start, self.end_offset if end is None else end),
        )

    def _append_time_of(self, offset: int) -> int | None:
        try:
            found = next(self.frames(offset), None) if self.messages else None
        except Corruption:
            return None
        return None if found is None else found[1].header.append_time

    def _scan(self, file: ScannedFile, index: SparseIndex | None = None) -> FrameScan:
        # Behind the end of a sealed segment the next one begins: nothing may be there twice.
        end_offset = None if self.is_active else self.end_offset
        limit = self.settings.frame_raw_bytes_max
        return FrameScan(file, end=self.end, end_offset=end_offset, index=index, raw_bytes_max=limit)

    def _examined(self, found: Found) -> Found | Damage:
        """Look inside a frame too: one whose checksum is right may have been wrong from the start."""
        header = found.frame.header
        if header.raw_bytes > self.settings.frame_raw_bytes_max:
            return found  # The limit was higher when it came in.
        try:
            found.frame.validate()
        except UnsupportedFrame:
            return found
        except InvalidFrame as error:
            offsets = (header.base_offset, header.end_offset)
            return Damage(found.position, found.end, offsets, error.reason)
        return found

    def _rebuilt_index(self) -> SparseIndex:
        index = SparseIndex(self.base_offset)
        note = Noter(index, self.settings.index_interval_bytes, index.mark[1])
        file = self.disk.open(self.path)
        try:
            for found in self._scan(file).frames(0, self.base_offset):
                if isinstance(found, Found):
                    note.frame(found)
        finally:
            file.close()
        return index


def _mapped(file: File, end: int) -> MappedFile:
    """The file's memory up to `end`, or up to where it ends now: what is missing is found by the scan."""
    return MappedFile(file.path, file.map(min(end, file.size())))
