"""Reading a log: the same for whoever writes it and for a process that only follows.

`LogReader` reads what a `SegmentSource` has: the writer of the log, or, for a `LogFollower`, the directory
as another process fills it. A reader changes no file and takes no lock.
"""

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Protocol

from quivermq.disk import Disk, SystemDisk, file_size
from quivermq.errors import Corruption, OffsetOutOfRange, StorageFailed
from quivermq.frame import Frame, each_left
from quivermq.log.opening import base_offsets, sealed_segments
from quivermq.model.messages import Record
from quivermq.segment import Segment, inspect_tail
from quivermq.settings import StorageSettings

READ_BYTES = 1024 * 1024

# An index takes some hundred kilobytes; only those of the segments read last are kept in memory.
_INDEXES_KEPT = 8
# A writer that removes a segment between every listing and its reading does not exist.
_ATTEMPTS_MAX = 10


class SegmentSource(Protocol):
    """Whoever keeps the segments of a log, for a reader."""

    segments: tuple[Segment, ...]
    """Oldest first. Replaced as a whole, never changed, so that a reader needs no lock to walk over it."""
    damage: Corruption | None
    """The first damage that anybody found: nothing behind it is served."""

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        ...

    @property
    def show(self) -> Callable[[int], None] | None:
        """Who has to know up to which offset somebody is shown what is there; None where nobody has."""
        ...

    def prepare(self) -> None:
        """Bring what can be read up to date, before reading begins."""
        ...

    def still_has(self, segment: Segment) -> bool:
        """Whether no other file has taken a segment's place, so that what is wrong with it is wrong."""
        ...


def earlier(known: Corruption | None, found: Corruption) -> Corruption:
    """Which of two damages comes first in the log."""
    return found if known is None or found.offsets[0] < known.offsets[0] else known


class LogReader:
    """Reads an ordered run of segments. Any thread may read at any time.

    Once damage was found, nothing behind it is served: a consumer that went on would never learn
    that it missed something. `quiver repair` sets the damaged bytes aside.
    """

    def __init__(self, source: SegmentSource) -> None:
        self._source = source
        # The segments that were read last, whose indexes are in memory.
        self._used: list[Segment] = []

    @property
    def start(self) -> int:
        """The first offset that is there; equal to `end` when there is none."""
        segments = self._source.segments
        return segments[0].base_offset if segments else 0

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        return self._source.end

    def first_from(self, offset: int) -> int:
        """The first offset from there on that is there."""
        return max(offset, self.start)

    @property
    def size_bytes(self) -> int:
        """How many bytes of frames there are."""
        return sum(segment.end for segment in self._source.segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        return self._source.segments

    @property
    def damage(self) -> Corruption | None:
        """What was found to be wrong with the bytes: nothing behind it is served."""
        return self._source.damage

    def frames(self, start: int | None = None, *, mapped: bool = False) -> Iterator[Frame]:
        """The frames from the one that holds `start` up to the end there is when it gets there.

        With `mapped` they lie in mapped memory, for `arrow_batch`, and no byte is copied. That is
        for bulk work in a process that may be restarted: a sector that cannot be read ends it.
        Raises OffsetOutOfRange, Corruption, StorageFailed.
        """
        source, show = self._source, self._source.show
        source.prepare()
        offset = self.start if start is None else start
        self.check_range(offset)
        while (segments := source.segments) and offset < segments[-1].end_offset:
            segment, last = self._segment_of(offset), None
            try:
                for _, last in segment.frames(offset, mapped=mapped):
                    if show is not None:
                        show(last.header.end_offset)
                    yield last
            except FileNotFoundError:
                # Retention, here or in the writing process, was faster.
                raise self._out_of_range(offset) from None
            except Corruption as error:
                # Truncation or compaction may have put another file in its place: then that one is asked.
                if source.still_has(segment):
                    source.damage = earlier(source.damage, error)
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
        """About how many bytes the messages from `offset` on take, by the segments' sizes."""
        size = 0
        for segment in reversed(self._source.segments):
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
        source = self._source
        source.prepare()
        for segment in source.segments:
            try:
                offset = self._using(segment).find_time(timestamp)
            except FileNotFoundError:
                continue  # Retention, here or in the writing process, was faster.
            except Corruption as error:
                if not source.still_has(segment):
                    return self.find_time(timestamp)
                source.damage = earlier(source.damage, error)
                raise
            if offset is not None:
                return offset
        return self.end

    def check_range(self, offset: int) -> None:
        """Raise OffsetOutOfRange for an offset that the log does not have, and the damage before it."""
        if not self.start <= offset <= self.end:
            raise self._out_of_range(offset)
        damage = self._source.damage
        if damage is not None and offset > damage.offsets[0]:
            raise copy(damage)

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(offset, start=self.start, end=self.end)

    def _segment_of(self, offset: int) -> Segment:
        segment = _segment_at(self._source.segments, offset)
        if segment is None:
            raise self._out_of_range(offset)
        return self._using(segment)

    def _using(self, segment: Segment) -> Segment:
        if not self._used or self._used[-1] is not segment:
            used = [other for other in self._used if other is not segment]
            for forgotten in used[:-_INDEXES_KEPT]:
                forgotten.forget_index()
            self._used = [*used[-_INDEXES_KEPT:], segment]
        return segment


def _segment_at(segments: tuple[Segment, ...], offset: int) -> Segment | None:
    """The segment that holds an offset, or would; None before the first."""
    index = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
    return segments[index - 1] if index else None


class LogFollower(LogReader):
    """A log open for reading only. Every read looks for what has been written since.

    The end of what can be read is the last frame that is whole: the writer may be in the middle of
    the next one, or may have died there.
    """

    def __init__(
        self, directory: str | os.PathLike[str], settings: StorageSettings, *, disk: Disk | None = None
    ) -> None:
        self.disk = disk or SystemDisk()
        self.directory = Path(directory)
        self.settings = settings
        self._followed = _FollowedSegments(self.disk, self.directory, settings)
        super().__init__(self._followed)
        self.refresh()

    def refresh(self) -> None:
        """Look at the directory again. Raises StorageFailed when it cannot be read."""
        self._followed.prepare()

    def sync(self, start: int = 0) -> int:
        """Make durable what there is from `start` on, as its writer would, and return where that ends.

        Any process may sync a file for all. Raises FsyncFailed.
        """
        self.refresh()
        end = self.end
        for segment in self.segments:
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
        with closing(file):
            file.sync()


class _FollowedSegments:
    """The segments of a directory that another process writes to, as they were when last looked at."""

    def __init__(self, disk: Disk, directory: Path, settings: StorageSettings) -> None:
        self.segments: tuple[Segment, ...] = ()
        self.damage: Corruption | None = None
        self._disk, self._directory, self._settings = disk, directory, settings
        # Whoever looks on is not told what is durable: it is read as the files have it.
        self.show = None
        # One thread at a time makes a segment grow; those who read meanwhile need no lock.
        self._refreshing = threading.Lock()

    @property
    def end(self) -> int:
        segments = self.segments
        return segments[-1].end_offset if segments else 0

    def prepare(self) -> None:
        with self._refreshing:
            self.segments = self._found()
            if self.damage is not None and self._is_gone(self.damage):
                self.damage = None

    def still_has(self, segment: Segment) -> bool:
        self.prepare()
        return segment in self.segments

    def _found(self) -> tuple[Segment, ...]:
        for _ in range(_ATTEMPTS_MAX):
            bases = base_offsets(self._disk, self._directory)
            try:
                return (*self._sealed(bases), *self._last(bases))
            except FileNotFoundError:
                continue  # The writer removed a segment after it was listed.
        raise StorageFailed(f"{self._directory} lists segments that cannot be found", path=self._directory)

    def _is_gone(self, damage: Corruption) -> bool:
        """Whether something whole stands where damage was found: a repair has put a gap there."""
        offset = damage.offsets[0]
        segment = _segment_at(self.segments, offset)
        if segment is None or offset >= self.end:
            return True
        try:
            next(segment.frames(offset))
        except (Corruption, FileNotFoundError):
            return False
        return True

    def _sealed(self, bases: list[int]) -> list[Segment]:
        """Segments that are known already keep their index, unless another file took their place."""
        known = {s.base_offset: s for s in self.segments if not s.is_active}
        return [
            old if (old := known.get(new.base_offset)) and old.end == new.end else new
            for new in sealed_segments(self._disk, self._directory, bases, self._settings)
        ]

    def _last(self, bases: list[int]) -> list[Segment]:
        if not bases:
            return []
        known = self.segments[-1] if self.segments else None
        if (
            known is not None
            and known.base_offset == bases[-1]
            and (known.end == file_size(self._disk, known.path) or known.grow())
        ):
            return [known]
        tail = inspect_tail(self._disk, self._directory, bases[-1], self._settings)
        segment = tail.segment(self._disk, self._directory, self._settings)
        for damage in tail.damages:
            self.damage = earlier(self.damage, segment.corruption(damage))
        return [segment]
