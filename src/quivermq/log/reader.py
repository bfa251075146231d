"""Reading a log: the same for its writer and for a process that only looks on."""

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from copy import copy
from itertools import islice
from pathlib import Path

from quivermq.disk import Disk, SystemDisk
from quivermq.errors import Corruption, OffsetOutOfRange, StorageFailed
from quivermq.frame import Frame, Record, each_left
from quivermq.log.opening import base_offsets, file_size, sealed_segments
from quivermq.segment import Segment, inspect_tail
from quivermq.settings import StorageSettings

READ_BYTES = 1024 * 1024

# An index takes some hundred kilobytes; only those of the segments read last are kept in memory.
_INDEXES_KEPT = 8


class LogReader:
    """An ordered run of segments. Any thread may read at any time.

    Once damage was found, nothing behind it is served: a consumer that went on would never learn
    that it missed something. `quiver repair` sets the damaged bytes aside.
    """

    def __init__(self, disk: Disk, directory: Path, settings: StorageSettings) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        # Replaced as a whole, never changed, so that a reader can walk over it without a lock.
        self._segments: tuple[Segment, ...] = ()
        self._damage: Corruption | None = None
        self._used: list[Segment] = []

    @property
    def start(self) -> int:
        """The first offset that is there; equal to `end` when there is none."""
        segments = self._segments
        return segments[0].base_offset if segments else 0

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        segments = self._segments
        return segments[-1].end_offset if segments else 0

    def first_from(self, offset: int) -> int:
        """The first offset from there on that is there."""
        return max(offset, self.start)

    @property
    def size_bytes(self) -> int:
        """How many bytes of frames there are."""
        return sum(segment.end for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        return self._segments

    @property
    def damage(self) -> Corruption | None:
        """What was found to be wrong with the bytes: nothing behind it is served."""
        return self._damage

    def frames(self, start: int | None = None, *, mapped: bool = False) -> Iterator[Frame]:
        """The frames from the one that holds `start` up to the end there is when it gets there.

        With `mapped` they lie in mapped memory, for `arrow_batch`, and no byte is copied. That is
        for bulk work in a process that may be restarted: a sector that cannot be read ends it.
        Raises OffsetOutOfRange, Corruption, StorageFailed.
        """
        self._prepare()
        offset = self.start if start is None else start
        self._check_range(offset)
        while (segments := self._segments) and offset < segments[-1].end_offset:
            segment, last = self._segment_of(offset), None
            try:
                for _, last in segment.frames(offset, mapped=mapped):
                    yield last
            except FileNotFoundError:
                # Retention, here or in the writing process, was faster.
                raise OffsetOutOfRange(offset, start=self.start, end=self.end) from None
            except Corruption as error:
                # Truncation or compaction may have put another file in its place: then that one is asked.
                if self._still_has(segment):
                    self._fence(error)
                    raise
            if last is not None:
                offset = last.header.end_offset

    def read(self, start: int, *, bytes_max: int = READ_BYTES) -> list[Frame]:
        """Frames from the one that holds `start`, up to `bytes_max`, but at least one if there is one."""
        frames: list[Frame] = []
        size = 0
        for frame in self.frames(start):
            size += frame.header.frame_bytes
            if frames and size > bytes_max:
                break
            frames.append(frame)
            if size >= bytes_max:
                break
        return frames

    def bytes_from(self, offset: int) -> int:
        """About how many bytes the messages from `offset` on take, told from the segments' sizes."""
        size = 0
        for segment in reversed(self._segments):
            messages = segment.messages
            if segment.end_offset <= offset:
                break
            # A new one has none yet, also behind an offset that is not in the log any more.
            size += segment.end * min(segment.end_offset - offset, messages) // max(1, messages)
        return size

    def records(self, start: int | None = None, *, limit: int | None = None) -> Iterator[Record]:
        """The messages from `start` on, one by one, without those that compaction has taken out."""
        return islice(self._records(start), limit)

    def _records(self, start: int | None) -> Iterator[Record]:
        for frame in self.frames(start):
            yield from each_left(frame, 0 if start is None else start)

    def find_time(self, timestamp: int) -> int:
        """The first offset whose message is not older than `timestamp` (µs); `end` when all are."""
        self._prepare()
        for segment in self._segments:
            try:
                offset = self._using(segment).find_time(timestamp)
            except FileNotFoundError:
                continue  # Retention, here or in the writing process, was faster.
            except Corruption as error:
                if not self._still_has(segment):
                    return self.find_time(timestamp)
                self._fence(error)
                raise
            if offset is not None:
                return offset
        return self.end

    def _still_has(self, segment: Segment) -> bool:
        """Whether no other file has taken a segment's place, so that what is wrong with it is wrong."""
        return segment in self._segments

    def _prepare(self) -> None:
        """Bring what can be read up to date, before reading begins."""

    def _check_range(self, offset: int) -> None:
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange(offset, start=self.start, end=self.end)
        damage = self._damage
        if damage is not None and offset > damage.offsets[0]:
            raise copy(damage)

    def _segment_of(self, offset: int) -> Segment:
        segments = self._segments
        place = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
        if place == 0:
            raise OffsetOutOfRange(offset, start=self.start, end=self.end)
        return self._using(segments[place - 1])

    def _using(self, segment: Segment) -> Segment:
        if not self._used or self._used[-1] is not segment:
            used = [other for other in self._used if other is not segment]
            for forgotten in used[:-_INDEXES_KEPT]:
                forgotten.forget_index()
            self._used = [*used[-_INDEXES_KEPT:], segment]
        return segment

    def _fence(self, error: Corruption) -> None:
        if self._damage is None or error.offsets[0] < self._damage.offsets[0]:
            self._damage = error


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
