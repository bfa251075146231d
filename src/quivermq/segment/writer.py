"""The growing end of a log: one segment that frames are appended to.

Two callers share a writer, each alone in its part: one appends, one syncs. The index's entries reach
their file only behind a sync, because each promises that what lies before it is durable.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from quivermq.disk import Buffer, Disk, File
from quivermq.errors import DiskRefused, OffsetOutOfRange, StorageFailed
from quivermq.frame import OFFSET_MAX, Frame, LoneFrame
from quivermq.segment.index import Noter, SparseIndex, index_path
from quivermq.segment.recovery import Tail
from quivermq.segment.segment import Segment
from quivermq.settings import StorageSettings

logger = logging.getLogger(__name__)


class SegmentWriter:
    """Appends to one segment. `segment` is what readers see of it."""

    def __init__(
        self,
        segment: Segment,
        index: SparseIndex,
        log_file: File,
        index_file: File | None,
        *,
        first_append_time: int | None,
        synced: int,
    ) -> None:
        self.segment = segment
        self.first_append_time = first_append_time
        self._index = index
        self._note = Noter(index, segment.settings.index_interval_bytes, segment.timestamp_max)
        self._log_file = log_file
        self._index_file = index_file
        self._synced = synced
        self._is_closed = False

    @classmethod
    def create(
        cls, disk: Disk, directory: Path, base_offset: int, settings: StorageSettings
    ) -> "SegmentWriter":
        """A new, empty segment, its names durable: recovery relies on finding the index's header."""
        index = SparseIndex(base_offset)
        segment = Segment(
            disk, directory, base_offset, settings, end_offset=base_offset, end=0, index=index
        )
        # On a full disk this is tried again and again, so nothing may stay open. No log may stay at all:
        # the segment before it may go on growing, and would then seem to end where this one begins.
        with ExitStack() as on_failure:
            on_failure.callback(_remove, disk, segment.path)
            index_file = disk.create(index_path(directory, base_offset))
            on_failure.callback(index_file.close)
            index_file.append([index.encode()])
            index_file.sync()
            log_file = disk.create(segment.path)
            on_failure.callback(log_file.close)
            disk.sync_directory(directory)
            on_failure.pop_all()
        return cls(
            segment,
            index,
            log_file,
            index_file,
            first_append_time=None,
            synced=0,
        )

    @classmethod
    def resume(cls, segment: Segment, tail: Tail) -> "SegmentWriter":
        """Go on behind the end of a segment that was recovered."""
        disk, path = segment.disk, index_path(segment.directory, segment.base_offset)
        first_append_time = tail.first_append_time or segment.first_append_time()
        with ExitStack() as on_failure:
            log_file = disk.open(segment.path, writable=True)
            on_failure.callback(log_file.close)
            index_file = None if tail.index_is_old else disk.open(path, writable=True)
            on_failure.pop_all()
        return cls(
            segment,
            tail.index,
            log_file,
            index_file,
            first_append_time=first_append_time,
            synced=tail.end,
        )

    @property
    def is_synced(self) -> bool:
        """Whether everything appended so far survives power loss."""
        return self._synced == self.segment.end

    def append(self, frames: Sequence[Frame], append_time: int) -> None:
        """Stamp frames and write them behind the end: all of them, or on an error none.

        Raises DiskRefused, after which the next append may succeed, or StorageFailed, after which none
        will.
        """
        buffers, notes, end_offset = self._stamped(frames, append_time)
        self._write(buffers, notes, end_offset, append_time)

    def stage(self, frames: Sequence[Frame], append_time: int) -> Callable[[], None]:
        """Write frames behind the end, where nobody sees them until what this returns is called.

        Or `unstage`; nothing else may be appended before. Raises as `append`, and then nothing is there.
        """
        buffers, notes, end_offset = self._stamped(frames, append_time)
        if end_offset > OFFSET_MAX:
            raise self._out_of_range(end_offset)
        try:
            written = self._log_file.append(buffers)
        except BaseException:
            self.unstage()
            raise
        return partial(self._show, written, notes, end_offset, append_time)

    def unstage(self) -> None:
        """Take away for good what was staged and not shown."""
        self._cut()

    def _stamped(
        self, frames: Sequence[Frame], append_time: int
    ) -> tuple[list[Buffer], list[tuple[int, int, int]], int]:
        """The bytes of frames at the end, what the index notes of each, and the offset behind them."""
        buffers: list[Buffer] = []
        notes: list[tuple[int, int, int]] = []
        offset, position = self.segment.end_offset, self.segment.end
        for frame in frames:
            header = frame.header
            buffers += frame.buffers_at(offset, append_time)
            notes.append((offset, header.timestamp_max, position))
            offset += header.message_count
            position += header.frame_bytes
        return buffers, notes, offset

    def append_lone(self, frame: LoneFrame, append_time: int) -> None:
        """As `append` with a frame of one message."""
        segment = self.segment
        offset, end = segment.end_offset, segment.end
        if offset >= OFFSET_MAX:
            raise self._out_of_range(offset + 1)
        try:
            # As `_write`, without the loops: logs that are written one by one live by this.
            written = self._log_file.append((frame.at(offset, append_time),))
            timestamp = frame.timestamp
            self._note(offset, append_time if timestamp is None else timestamp, end)
            if self.first_append_time is None:
                self.first_append_time = append_time
            segment.end = end + written
            segment.end_offset = offset + 1
        except BaseException:
            if segment.end_offset == offset:
                self._take_back(end)
            raise

    def _write(
        self,
        buffers: Sequence[Buffer],
        notes: Sequence[tuple[int, int, int]],
        end_offset: int,
        append_time: int,
    ) -> None:
        """Write the buffers, and note for the index the offset, timestamp and position of each frame."""
        segment = self.segment
        if end_offset > OFFSET_MAX:
            raise self._out_of_range(end_offset)
        end = segment.end
        try:
            # As `_show`, which every message would have to wait for.
            written = self._log_file.append(buffers)
            for note in notes:
                self._note(*note)
            if self.first_append_time is None:
                self.first_append_time = append_time
            # Readers ask for the offset first and for the bytes then, so the bytes must be there first.
            segment.end = end + written
            segment.end_offset = end_offset
        except BaseException:
            # Also when interrupted from the keyboard, wherever that was: either the frames are in the
            # log and everybody knows, or they are not.
            if segment.end_offset != end_offset:
                self._take_back(end)
            raise

    def _take_back(self, end: int) -> None:
        self.segment.end = end
        self._note.cut(end)
        self._cut()

    def _out_of_range(self, end_offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(end_offset, start=self.segment.base_offset, end=OFFSET_MAX)

    def _show(
        self, written: int, notes: Sequence[tuple[int, int, int]], end_offset: int, append_time: int
    ) -> None:
        """Let everybody see what was written."""
        segment = self.segment
        for note in notes:
            self._note(*note)
        if self.first_append_time is None:
            self.first_append_time = append_time
        # The bytes first, as above.
        segment.end += written
        segment.end_offset = end_offset

    def _cut(self) -> None:
        """Take away what a refused write left, for good.

        A power loss could bring it back otherwise: whole frames, which the caller knows are not there,
        or half a frame at the end of a segment that nobody looks at any more.
        """
        if self._log_file.size() > self.segment.end:
            self._log_file.truncate(self.segment.end)
            self._log_file.sync()

    def sync(self) -> None:
        """Return once everything appended before the call survives power loss."""
        end = self.segment.end
        if end == self._synced:
            return
        self._log_file.sync()
        self._synced = end
        self._append_to_index(end)

    def close(self) -> None:
        """Sync, leave a mark at the end, and let go of the files.

        Without the mark the next opening would take longer, and would not know which offsets a disk has
        lost that it had synced: so the mark is synced, too. Closing twice is allowed.
        """
        if self._is_closed:
            return
        self.sync()
        segment, index = self.segment, self._index
        if index.mark[2] != segment.end:
            index.add(segment.end_offset, self._note.timestamp_max, segment.end)
            self._append_to_index(segment.end)
        self._sync_index()
        segment.is_active = False
        self._is_closed = True
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are."""
        self._log_file.close()
        self._give_up_index()

    def _append_to_index(self, synced: int) -> None:
        entries = self._index.encode_more(synced)
        if not entries or self._index_file is None:
            return
        try:
            self._index_file.append([entries])
        except (DiskRefused, StorageFailed) as error:
            # The log is what counts, and it is safe: the index is made anew at the next opening.
            logger.warning("stopped writing the index of %s: %s", self.segment.path, error)
            self._give_up_index()

    def _sync_index(self) -> None:
        if self._index_file is not None:
            self._index_file.sync()

    def _give_up_index(self) -> None:
        if self._index_file is not None:
            self._index_file.close()
            self._index_file = None


def _remove(disk: Disk, path: Path) -> None:
    """Take away the log of a segment that did not come to be, for good."""
    if not disk.exists(path):
        return
    try:
        # Whatever the disk failed at before is what the caller has to know.
        with suppress(StorageFailed):
            disk.remove(path)
            disk.sync_directory(path.parent)
    except DiskRefused as error:
        # It may come back after a power loss: nothing may be appended to the segment before it.
        raise StorageFailed(f"{path} cannot be taken away again: {error}", path=path) from error
