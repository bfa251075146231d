"""How a log is opened, written to, made durable and closed.

Three roles, each held by one thread at a time: anybody reads; whoever holds `_lock` writes; whoever
holds `_sync_lock` makes durable what was written, while others go on writing. Single messages gather,
at `buffered` in `_buffer` and at `fsync` in a group commit, and become one frame when they are written.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import Self, TypeVar

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Disk, SystemDisk
from quivermq.errors import Closing, Corruption, DiskRefused, QuiverError, StorageFailed
from quivermq.frame import HEADER_BYTES, Frame, Rest, compression_of, lone_frame
from quivermq.log.commit import GroupCommit
from quivermq.log.entries import Entry, Gathered
from quivermq.log.flusher import Flusher, Scheduler
from quivermq.log.opening import gap_frames, recover_directory
from quivermq.log.reader import LogReader
from quivermq.metrics import Histogram
from quivermq.reentry import entered
from quivermq.segment import Segment, SegmentWriter, Tail
from quivermq.settings import StorageSettings

Written = TypeVar("Written")

# Each segment that waits for the next sync has two files open.
_RETIRED_MAX = 16
# How long to wait before a disk that refused something is asked again.
RETRY_S = 1.0


class LogWriter(LogReader):
    """What every change of a log stands on."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        settings: StorageSettings,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
        sync_time: Histogram | None = None,
        is_state: bool = False,
    ) -> None:
        super().__init__(disk or SystemDisk(), Path(directory), settings)
        self._is_state = is_state
        self._clock = clock or SystemClock()
        self._scheduler = scheduler or Flusher(self._clock)
        self._owns_scheduler = scheduler is None
        self._sync_time = sync_time
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._replacing = threading.Lock()
        self._commit = GroupCommit(self._commit_group, self.directory)
        self._codec = compression_of(
            settings.codec, settings.compression_level, settings.compression_bytes_min
        )
        self._buffer = Gathered()
        self._flush_is_scheduled = False
        self._sync_is_scheduled = False
        # A segment went whose name may come back after a power loss.
        self._owes_directory_sync = False
        # A truncation was refused in the middle, perhaps before the log ends where it should.
        self._is_half_cut = False
        self._owed_end: int | None = None
        self._retired: list[SegmentWriter] = []
        self._failure: QuiverError | None = None
        self._is_closed = False
        self._pid = os.getpid()
        self._writer = self._open()
        self._next_offset = self._synced_end = self._writer.segment.end_offset
        _open_logs.add(self)

    def _open(self) -> SegmentWriter:
        segments, tail = recover_directory(self.disk, self.directory, self.settings)
        if tail is None:
            writer = SegmentWriter.create(self.disk, self.directory, 0, self.settings)
            segments.append(writer.segment)
        else:
            writer = SegmentWriter.resume(segments[-1], tail)
            for damage in tail.damages:
                self._fence(segments[-1].corruption(damage))
            if tail.end_offset < tail.marked_offset:
                if self._is_state:
                    writer.abandon()
                    raise _missing_end(segments[-1], tail)
                self._keep_lost_offsets(writer, tail)
                return self._open()
        self._segments = tuple(segments)
        return writer

    def _keep_lost_offsets(self, writer: SegmentWriter, tail: Tail) -> None:
        """Where the file is shorter than it was when last synced, a gap says so for ever.

        Somebody may have acknowledged those offsets: they must not come back with other messages.
        """
        lost = (tail.end_offset, tail.marked_offset)
        now_us = self._clock.now_us()
        reason = "the file was shorter than when it was last synced"
        try:
            writer.append(gap_frames(lost, None, reason, now_us), now_us)
            writer.sync()
        finally:
            writer.abandon()

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        return self._next_offset

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed and has to be opened again."""
        return self._is_closed

    @property
    def failure(self) -> QuiverError | None:
        """Why nothing can be appended any more, until the log is opened again."""
        return self._failure

    @property
    def synced_end(self) -> int:
        """Everything before this offset survives power loss."""
        return self._synced_end

    def _prepare(self) -> None:
        if self._is_half_cut:
            # Nobody knows what there is: an answer would leave messages out.
            self._check_usable()
        if self._buffer.values and self._failure is None:
            self.flush()

    def _still_has(self, segment: Segment) -> bool:
        # Whoever replaces it holds the lock until everybody can see the new one.
        with self._lock:
            return super()._still_has(segment)

    def flush(self) -> None:
        """Hand everything buffered to the operating system: after that, it survives kill -9."""
        with self._lock:
            self._check_usable()
            self._flush_buffer()

    def sync(self, end: int | None = None) -> None:
        """Return once everything before `end` survives power loss; without it, all that was appended.

        Threads that come together share one sync.
        """
        if end is None:
            self.flush()
            end = self._next_offset
        if self._synced_end >= end:
            return
        with self._sync_lock:
            if self._synced_end < end:
                self._sync()

    def close(self) -> None:
        """Write and sync everything, and let go of the files. Closing twice is allowed.

        Raises DiskFull when buffered messages cannot be written: they are kept, and `close` can be
        called again once there is room.
        """
        if self._pid != os.getpid():
            return
        try:
            with self._sync_lock, self._lock:
                self._close()
        finally:
            if self._is_closed and self._owns_scheduler:
                self._scheduler.close()

    def _close(self) -> None:
        if self._is_closed:
            return
        if self._failure is None:
            self._flush_buffer()
        failure, self._failure = self._failure, Closing(f"{self.directory} was closed")
        self._is_closed = True
        try:
            if failure is None:
                self._close_writers()
                self._synced_end = self._writer.segment.end_offset
        finally:
            for writer in (*self._retired, self._writer):
                writer.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The writing role: these are called with `_lock` held, or take it.

    def _check_usable(self) -> None:
        if self._failure is not None:
            # A copy, because one traceback would grow with every caller that is told.
            raise copy(self._failure)

    def _append_frames(self, frames: Sequence[Frame]) -> int:
        with self._lock:
            self._check_usable()
            self._flush_buffer()
            return self._put(frames)

    def _append_one(self, value: bytes, rest: Rest | None) -> int:
        """What `_append_frames` does, for a message that is alone: only bytes are made of it."""
        frame = lone_frame(value, rest, self._codec)
        with self._lock:
            if self._buffer.values:
                self._check_usable()
                self._flush_buffer()
            return self._write(SegmentWriter.append_lone, frame, HEADER_BYTES + len(frame.stored))

    def _put(self, frames: Sequence[Frame]) -> int:
        """Write frames behind everything that came before, and return the first offset."""
        frame_bytes = sum(frame.header.frame_bytes for frame in frames)
        return self._write(SegmentWriter.append, frames, frame_bytes)

    @contextmanager
    def staging(self, frames: Sequence[Frame]) -> Iterator[Callable[[], int]]:
        """Write frames where nobody sees them yet, and hold the log meanwhile.

        What this yields shows them, and returns their first offset; leaving without it takes them away.
        Whoever stages in several logs of a topic does so by partition and lane. Raises DiskRefused.
        """
        with self._lock:
            self._check_usable()
            self._flush_buffer()
            shown: list[int] = []
            show = self._stage(frames, shown)
            try:
                yield show
            finally:
                if not shown:
                    self._unstage()

    def _stage(self, frames: Sequence[Frame], shown: list[int]) -> Callable[[], int]:
        now_us, frame_bytes = self._clock.now_us(), sum(frame.header.frame_bytes for frame in frames)
        try:
            if self._is_full(frame_bytes, now_us):
                self._roll()
            base = self._writer.segment.end_offset
            show = self._writer.stage(frames, now_us)
        except StorageFailed as error:
            self._failure = error
            raise

        def show_all() -> int:
            show()
            self._next_offset = self._writer.segment.end_offset
            if not self._sync_is_scheduled:
                self._schedule_sync()
            shown.append(base)
            return base

        return show_all

    def _unstage(self) -> None:
        try:
            self._writer.unstage()
        except StorageFailed as error:
            self._failure = error
            raise

    def _write(
        self, append: Callable[[SegmentWriter, Written, int], None], written: Written, frame_bytes: int
    ) -> int:
        if self._failure is not None:
            self._check_usable()
        now_us = self._clock.now_us()
        try:
            if self._is_full(frame_bytes, now_us):
                self._roll()
            writer = self._writer
            base = writer.segment.end_offset
            append(writer, written, now_us)
        except StorageFailed as error:
            self._failure = error
            raise
        self._next_offset = writer.segment.end_offset
        if not self._sync_is_scheduled:
            self._schedule_sync()
        return base

    def _schedule_sync(self) -> None:
        self._sync_is_scheduled = True
        self._scheduler.schedule(self.settings.fsync_interval_ms / 1000, self._sync_due)

    def _flush_buffer(self) -> None:
        if not self._buffer.values:
            return
        before, empty = self._writer.segment.end_offset, Gathered()
        try:
            self._put(self._buffer.frames(self._clock.now_us(), self._codec, self.settings))
        finally:
            # Also when interrupted from the keyboard: what was written must not be written again.
            if self._writer.segment.end_offset > before:
                self._buffer = empty

    def _is_full(self, incoming_bytes: int, now_us: int) -> bool:
        segment, settings = self._writer.segment, self.settings
        if segment.end == 0:
            return False
        opened_us = self._writer.first_append_time
        return (
            segment.end + incoming_bytes > settings.segment_bytes
            or (settings.segment_messages is not None and segment.messages >= settings.segment_messages)
            or (
                settings.segment_ms is not None
                and opened_us is not None
                and now_us - opened_us >= settings.segment_ms * 1000
            )
        )

    def _roll(self) -> None:
        """Begin the next segment. The old one is closed with the next sync, not to wait for it here."""
        end_offset = self._writer.segment.end_offset
        writer = SegmentWriter.create(self.disk, self.directory, end_offset, self.settings)
        self._retired.append(self._writer)
        if len(self._retired) == _RETIRED_MAX:
            self._scheduler.schedule(0, self._sync_due)
        self._writer = writer
        self._segments = (*self._segments, writer.segment)

    def _commit_group(self, entries: list[Entry]) -> int:
        if len(entries) == 1:
            base = self._append_one(*entries[0])
        else:
            now_us, codec, settings = self._clock.now_us(), self._codec, self.settings
            base = self._append_frames(Gathered(entries).frames(now_us, codec, settings))
        with self._sync_lock:
            # Whoever synced meanwhile, closing the log perhaps, has done it for these too.
            if self._synced_end < base + len(entries):
                self._sync()
        return base

    @entered
    def _flush_due(self) -> None:
        self._flush_is_scheduled = False
        if self._failure is None:
            try:
                self.flush()
            except DiskRefused:
                # Nobody may append again and so ask for another attempt.
                self._flush_is_scheduled = True
                self._scheduler.schedule(RETRY_S, self._flush_due)
                raise

    @entered
    def _sync_due(self) -> None:
        self._sync_is_scheduled = False
        if self._failure is None:
            with self._sync_lock:
                self._sync()

    # The syncing role: these are called with `_sync_lock` held.

    def _sync(self) -> None:
        with self._lock:
            self._check_usable()
            retired, writer = list(self._retired), self._writer
            end_offset = writer.segment.end_offset
        start = self._clock.monotonic()
        try:
            for old in retired:
                old.close()
            writer.sync()
        except StorageFailed as error:
            # The kernel may have dropped the pages that it could not write: a second attempt would
            # succeed and mean nothing.
            self._failure = error
            raise
        if retired:
            with self._lock:
                del self._retired[: len(retired)]
        if self._sync_time is not None and end_offset > self._synced_end:
            self._sync_time.observe(self._clock.monotonic() - start)
        self._synced_end = end_offset

    def _close_writers(self) -> None:
        for writer in (*self._retired, self._writer):
            writer.close()
        self._retired.clear()


def append_together(parts: Sequence[tuple[LogWriter, Sequence[Frame]]]) -> list[int]:
    """Append frames to several logs, to all of them or, when one has no room, to none.

    Returns the first offset in each. The logs come in the order in which everybody takes them.
    """
    with ExitStack() as held:
        staged = [held.enter_context(log.staging(frames)) for log, frames in parts]
        return [show() for show in staged]


def _missing_end(segment: Segment, tail: Tail) -> Corruption:
    """Without its end, the records of some state would bring about another one: that is for a repair."""
    return Corruption(
        "the file is shorter than it was when last synced",
        path=segment.path,
        position=tail.end,
        offsets=(tail.end_offset, tail.marked_offset),
    )


_open_logs: "weakref.WeakSet[LogWriter]" = weakref.WeakSet()


def _disown() -> None:
    """In a forked child: the files belong to the parent, which goes on writing to them."""
    for log in _open_logs:
        # Threads that the child does not have may hold the old ones.
        log._lock, log._sync_lock, log._replacing = (threading.Lock() for _ in range(3))
        log._failure = Closing(f"{log.directory} was opened before the fork: open it in the child")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
