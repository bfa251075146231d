"""Looking on while another process writes. Changes no file and takes no lock."""

import os
import threading
from pathlib import Path

from quivermq.disk import Disk, SystemDisk
from quivermq.errors import Corruption, StorageFailed
from quivermq.log.opening import base_offsets, file_size, sealed_segments
from quivermq.log.reader import LogReader
from quivermq.segment import Segment, inspect_tail
from quivermq.settings import StorageSettings

# A writer that removes a segment between every listing and its reading does not exist.
_ATTEMPTS_MAX = 10


class LogFollower(LogReader):
    """A log open for reading only. Every read looks for what has been written since.

    The end of what can be read is the last frame that is whole: the writer may be in the middle of
    the next one, or may have died there.
    """

    def __init__(
        self, directory: str | os.PathLike[str], settings: StorageSettings, *, disk: Disk | None = None
    ) -> None:
        super().__init__(disk or SystemDisk(), Path(directory), settings)
        # One thread at a time makes a segment grow; those who read meanwhile need no lock.
        self._refreshing = threading.Lock()
        self.refresh()

    def _prepare(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Look at the directory again. Raises StorageFailed when it cannot be read."""
        with self._refreshing:
            self._segments = self._found()
            if self._damage is not None and self._is_gone(self._damage):
                self._damage = None

    def sync(self, start: int = 0) -> int:
        """Make durable what there is from `start` on, as its writer would, and return where that ends.

        Any process may sync a file for all. Raises FsyncFailed.
        """
        self.refresh()
        end = self.end
        for segment in self._segments:
            if segment.end_offset > start:
                self._sync_file(segment)
        self.disk.sync_directory(self.directory)
        # A put that finds no room takes back what it has written.
        self.refresh()
        return min(end, self.end)

    def _sync_file(self, segment: Segment) -> None:
        try:
            file = self.disk.open(segment.path)
        except FileNotFoundError:
            return  # Retention was faster: what is gone need not be durable.
        try:
            file.sync()
        finally:
            file.close()

    def _still_has(self, segment: Segment) -> bool:
        self.refresh()
        return super()._still_has(segment)

    def _found(self) -> tuple[Segment, ...]:
        for _ in range(_ATTEMPTS_MAX):
            bases = base_offsets(self.disk, self.directory)
            try:
                return (*self._sealed(bases), *self._last(bases))
            except FileNotFoundError:
                continue  # The writer removed a segment after it was listed.
        raise StorageFailed(f"{self.directory} lists segments that cannot be found", path=self.directory)

    def _is_gone(self, damage: Corruption) -> bool:
        """Whether something whole stands where damage was found: a repair has put a gap there."""
        offset = damage.offsets[0]
        if not self.start <= offset < self.end:
            return True
        try:
            next(self._segment_of(offset).frames(offset))
        except (Corruption, FileNotFoundError):
            return False
        return True

    def _sealed(self, bases: list[int]) -> list[Segment]:
        """Segments that are known already keep their index, unless another file took their place."""
        known = {s.base_offset: s for s in self._segments if not s.is_active}
        return [
            old if (old := known.get(new.base_offset)) and old.end == new.end else new
            for new in sealed_segments(self.disk, self.directory, bases, self.settings)
        ]

    def _last(self, bases: list[int]) -> list[Segment]:
        if not bases:
            return []
        known = self._segments[-1] if self._segments else None
        if known is not None and known.base_offset == bases[-1]:
            if known.end == file_size(self.disk, known.path):
                return [known]
            if known.grow():
                return [known]
        tail = inspect_tail(self.disk, self.directory, bases[-1], self.settings)
        segment = Segment(
            self.disk,
            self.directory,
            bases[-1],
            self.settings,
            end_offset=tail.end_offset,
            end=tail.end,
            index=tail.index,
            timestamp_max=tail.timestamp_max,
        )
        for damage in tail.damages:
            self._fence(segment.corruption(damage))
        return [segment]
