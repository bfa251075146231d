"""The growing end of a log: how it is opened, written to, made durable and closed.

Three roles, each held by one thread at a time: anybody reads; whoever holds `lock` writes; whoever
holds `sync_lock` makes durable what was written, while others go on writing. Single messages gather,
at `buffered` in a buffer and at `fsync` in a group commit, and become one frame when they are written.
On a disk that has its truth elsewhere nobody waits for that with a lock, but each for its own ticket.
What changes the log elsewhere than at its end is in `maintenance.py`.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import TypeVar

from quivermq.clock import Clock
from quivermq.disk import Answer, Disk, ordered
from quivermq.errors import Closing, Corruption, DiskRefused, QuiverError, StorageFailed
from quivermq.frame import HEADER_BYTES, AnyCodec, EntryFields, Frame, compression_of, lone_frame
from quivermq.log.commit import GroupCommit
from quivermq.log.entries import VALUE_OVERHEAD_BYTES, Entry, EntryBatch, check_durability
from quivermq.log.flusher import Flusher, Scheduler
from quivermq.log.opening import gap_frames, recover_directory
from quivermq.log.reader import earlier
from quivermq.log.tickets import Tickets
from quivermq.metrics import Histogram
from quivermq.reentry import entered
from quivermq.segment import Segment, SegmentWriter, Tail
from quivermq.settings import Durability, StorageSettings

Written = TypeVar("Written")

# Each segment that waits for the next sync has two files open.
_RETIRED_MAX = 16
# How long to wait before a disk that refused something is asked again.
RETRY_S = 1.0


class LogWriter:
    """Appends to a log, and keeps its segments for whoever reads it (a `SegmentSource`).

    After a failed sync, or a write that failed for another reason than a full disk, `failure` is set, and
    every append raises a copy of it.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        settings: StorageSettings,
        *,
        clock: Clock,
        scheduler: Scheduler | None,
        sync_time: Histogram | None,
        is_state: bool,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.clock = clock
        self.scheduler = scheduler or Flusher(clock)
        self.codec = _codec(settings)
        self.segments: tuple[Segment, ...] = ()
        self.damage: Corruption | None = None
        # The offset that the next message gets, and that before which everything survives power loss.
        self.end = self.synced_end = 0
        self.failure: QuiverError | None = None
        self.is_closed = False
        # A truncation was refused in the middle, perhaps before the log ends where it should.
        self.is_half_cut = False
        # They are taken in this order.
        self.replacing, self.sync_lock, self.lock = (threading.Lock() for _ in range(3))
        self._commits = disk.commits
        self._tickets = None if disk.commits is None else Tickets(disk.commits)
        self.show = None if self._tickets is None else self._tickets.show
        self._owns_scheduler = scheduler is None
        self._sync_time = sync_time
        self._is_state = is_state
        self._commit = GroupCommit(self._commit_group, directory)
        self._buffer = EntryBatch()
        self._flush_is_scheduled = False
        self._sync_is_scheduled = False
        # Full segments that the next sync closes.
        self._retired: list[SegmentWriter] = []
        self._active: SegmentWriter
        self._pid = os.getpid()
        ordered(disk, self.reopen)
        _open_writers.add(self)

    @property
    def active(self) -> Segment:
        """The segment that grows."""
        return self._active.segment

    @property
    def durable_end(self) -> int:
        """Everything before this offset survives power loss."""
        return self.synced_end if self._tickets is None else self._tickets.durable_end()

    def prepare(self) -> None:
        """Let readers see what is buffered."""
        if self.is_half_cut:
            # Nobody knows what there is: an answer would leave messages out.
            self.check_usable()
        if self._buffer.values and self.failure is None:
            self.flush()

    def still_has(self, segment: Segment) -> bool:
        # Whoever replaces it holds the lock until everybody can see the new one.
        with self.lock:
            return segment in self.segments

    def check_usable(self) -> None:
        """Raise what has fenced the log, if anything has."""
        if self.failure is not None:
            # A copy, because one traceback would grow with every caller that gets it.
            raise copy(self.failure)

    def configure(self, settings: StorageSettings) -> None:
        """Go on with other settings."""
        with self.sync_lock, self.lock:
            self.settings, self.codec = settings, _codec(settings)

    # Appending.

    def append_entry(self, value: bytes, rest: EntryFields | None, durability: Durability | None) -> int:
        """Append a message that `checked_entry` has seen, and return its offset: see `Log.append`."""
        settings = self.settings
        durability = durability or settings.durability
        if durability == "os":
            return self._append_one(value, rest)
        if durability != "buffered":
            check_durability(durability)
            self.check_usable()
            offset = self._commit.join((value, rest))
            if self._tickets is not None:
                self._tickets.wait(offset + 1)
            return offset
        with self.lock:
            if self.failure is not None:
                self.check_usable()
            buffer = self._buffer
            gathered = len(buffer.values)
            if gathered >= settings.batch_messages or buffer.bytes >= settings.batch_bytes:
                # Before the message is taken: if there is no room, it must not have been.
                self.flush_buffer()
                buffer = self._buffer
                gathered = len(buffer.values)
            if not self._flush_is_scheduled:
                self._flush_is_scheduled = True
                self.scheduler.schedule(settings.linger_ms / 1000, self._flush_due)
            offset = self._active.segment.end_offset + gathered
            if rest is not None:
                buffer.add(value, rest)
            else:
                # As `add` does it, without the call: most messages that are buffered are just values.
                buffer.bytes += len(value) + VALUE_OVERHEAD_BYTES
                buffer.values.append(value)
            self.end = offset + 1
            return offset

    def append_frames(self, frames: Sequence[Frame], durability: Durability | None) -> int:
        """Append frames, all or nothing, and return the first offset once they are as durable as asked."""
        durability = durability or self.settings.durability
        check_durability(durability)
        offset = self._append_frames(frames)
        if durability == "fsync":
            # Not by the group commit: it may fail because of messages that are not in the log yet.
            end = offset + sum(map(len, frames))
            if self._tickets is None:
                self.sync(end)
            else:
                self._tickets.wait(end)
        return offset

    @contextmanager
    def staging(self, frames: Sequence[Frame]) -> Iterator[Callable[[], int]]:
        """Write frames where nobody sees them yet, and hold the log meanwhile: see `Log.staging`."""
        with self.lock:
            self.check_usable()
            self.flush_buffer()
            shown: list[int] = []
            show = self._stage(frames, shown)
            try:
                yield show
            finally:
                if not shown:
                    self._unstage()

    def _stage(self, frames: Sequence[Frame], shown: list[int]) -> Callable[[], int]:
        now_us, frame_bytes = self.clock.now_us(), sum(frame.header.frame_bytes for frame in frames)
        try:
            if self._is_full(frame_bytes, now_us):
                self.roll()
            base = self.active.end_offset
            show = self._active.stage(frames, now_us)
        except StorageFailed as error:
            self.failure = error
            raise

        def show_all() -> int:
            show()
            self.end = self.active.end_offset
            if self._tickets is not None:
                self._tickets.note(self.end)
            if not self._sync_is_scheduled:
                self._schedule_sync()
            shown.append(base)
            return base

        return show_all

    def _unstage(self) -> None:
        try:
            self._active.unstage()
        except StorageFailed as error:
            self.failure = error
            raise

    def _append_frames(self, frames: Sequence[Frame]) -> int:
        with self.lock:
            self.check_usable()
            self.flush_buffer()
            return self._put(frames)

    def _append_one(self, value: bytes, rest: EntryFields | None) -> int:
        """What `_append_frames` does, for a message that is alone: only bytes are made of it."""
        frame = lone_frame(value, rest, self.codec)
        with self.lock:
            if self._buffer.values:
                self.check_usable()
                self.flush_buffer()
            return self._write(SegmentWriter.append_lone, frame, HEADER_BYTES + len(frame.stored))

    def _commit_group(self, entries: list[Entry]) -> int:
        if len(entries) == 1:
            base = self._append_one(*entries[0])
        else:
            now_us, codec, settings = self.clock.now_us(), self.codec, self.settings
            base = self._append_frames(EntryBatch(entries).frames(now_us, codec, settings))
        if self._tickets is None:
            # Otherwise each of them waits by itself: while one did it for all, the next could not begin.
            self._sync_before(base + len(entries))
        return base

    # The writing role: these are called with `lock` held.

    def flush_buffer(self) -> None:
        """Write what is buffered."""
        if not self._buffer.values:
            return
        before, empty = self.active.end_offset, EntryBatch()
        try:
            self._put(self._buffer.frames(self.clock.now_us(), self.codec, self.settings))
        finally:
            # Also when interrupted from the keyboard: what was written must not be written again.
            if self.active.end_offset > before:
                self._buffer = empty

    def roll(self) -> None:
        """Begin the next segment. The old one is closed with the next sync, not to wait for it here."""
        create = partial(
            SegmentWriter.create, self.disk, self.directory, self.active.end_offset, self.settings
        )
        writer = ordered(self.disk, create)
        self._retired.append(self._active)
        if len(self._retired) == _RETIRED_MAX:
            self.scheduler.schedule(0, self._sync_due)
        self._active = writer
        self.segments = (*self.segments, writer.segment)

    def _put(self, frames: Sequence[Frame]) -> int:
        """Write frames behind everything that came before, and return the first offset."""
        frame_bytes = sum([frame.header.frame_bytes for frame in frames])
        return self._write(SegmentWriter.append, frames, frame_bytes)

    def _write(
        self, append: Callable[[SegmentWriter, Written, int], None], written: Written, frame_bytes: int
    ) -> int:
        if self.failure is not None:
            self.check_usable()
        now_us = self.clock.now_us()
        writer, settings = self._active, self.settings
        try:
            # Mostly the bytes alone say that it is not full, and cost less than a call.
            if (
                writer.segment.end + frame_bytes > settings.segment_bytes
                or settings.segment_messages is not None
                or settings.segment_ms is not None
            ) and self._is_full(frame_bytes, now_us):
                self.roll()
                writer = self._active
            base = writer.segment.end_offset
            append(writer, written, now_us)
        except StorageFailed as error:
            self.failure = error
            raise
        self.end = writer.segment.end_offset
        if self._tickets is not None:
            self._tickets.note(self.end)
        if not self._sync_is_scheduled:
            self._schedule_sync()
        return base

    def _is_full(self, incoming_bytes: int, now_us: int) -> bool:
        segment, settings = self._active.segment, self.settings
        if segment.end == 0:
            return False
        opened_us = self._active.first_append_time
        return (
            segment.end + incoming_bytes > settings.segment_bytes
            or (settings.segment_messages is not None and segment.messages >= settings.segment_messages)
            or (
                settings.segment_ms is not None
                and opened_us is not None
                and now_us - opened_us >= settings.segment_ms * 1000
            )
        )

    def _schedule_sync(self) -> None:
        self._sync_is_scheduled = True
        self.scheduler.schedule(self.settings.fsync_interval_ms / 1000, self._sync_due)

    # Durability.

    def flush(self) -> None:
        """Hand everything buffered to the operating system."""
        with self.lock:
            self.check_usable()
            self.flush_buffer()

    def sync(self, end: int | None = None) -> None:
        """Return once everything before `end`, or all that was appended, survives power loss."""
        if end is None:
            self.flush()
            end = self.end
        if self.synced_end < end:
            ordered(self.disk, partial(self._sync_before, end))
        if self._tickets is not None:
            self._tickets.wait(end)

    def _sync_before(self, end: int) -> None:
        with self.sync_lock:
            # Whoever synced meanwhile, closing the log perhaps, has done it for these too.
            if self.synced_end < end:
                self.sync_written()

    def whole(self, act: Callable[[], Answer]) -> Answer:
        """Do something that syncs in several places, and return once all of it is durable.

        It may take the locks: it waits only for a disk that syncs at once, never for a store.
        """
        if self._commits is None:
            return act()
        answer = self._commits.ordered(act)
        self._commits.commit(self._commits.ticket())
        return answer

    def sync_written(self) -> None:
        """Make durable all that was written. Called with `sync_lock` held, and see `whole`."""
        with self.lock:
            self.check_usable()
            retired, writer = list(self._retired), self._active
            end_offset = writer.segment.end_offset
        start = self.clock.monotonic()
        try:
            for old in retired:
                old.close()
            writer.sync()
        except StorageFailed as error:
            # The kernel may have dropped the pages that it could not write: a second attempt would
            # succeed and mean nothing.
            self.failure = error
            raise
        if retired:
            with self.lock:
                del self._retired[: len(retired)]
        if self._sync_time is not None and self._commits is None and end_offset > self.synced_end:
            self._sync_time.observe(self.clock.monotonic() - start)
        self.synced_end = end_offset

    @entered
    def _flush_due(self) -> None:
        self._flush_is_scheduled = False
        if self.failure is None and self._loss is None:
            try:
                ordered(self.disk, self.flush)
            except DiskRefused:
                # Nobody may append again and so ask for another attempt.
                self._flush_is_scheduled = True
                self.scheduler.schedule(RETRY_S, self._flush_due)
                raise

    @entered
    def _sync_due(self) -> None:
        self._sync_is_scheduled = False
        if self.failure is None and self._loss is None:
            ordered(self.disk, self._sync_all)

    def _sync_all(self) -> None:
        with self.sync_lock:
            self.sync_written()

    @property
    def _loss(self) -> QuiverError | None:
        """Why nothing can be written any more, here as everywhere on the disk; None while it can."""
        return None if self._commits is None else self._commits.failure

    # Opening and closing: these, but for `close`, are called with both locks held.

    def reopen(self) -> None:
        """Make the log in the directory whole, and go on behind its end."""
        segments, tail = recover_directory(self.disk, self.directory, self.settings)
        if tail is None:
            writer = SegmentWriter.create(self.disk, self.directory, 0, self.settings)
            segments.append(writer.segment)
        else:
            writer = SegmentWriter.resume(segments[-1], tail)
            for damage in tail.damages:
                self.damage = earlier(self.damage, segments[-1].corruption(damage))
            if tail.end_offset < tail.marked_offset:
                if self._is_state:
                    writer.abandon()
                    raise _missing_end(segments[-1], tail)
                self._keep_lost_offsets(writer, tail)
                self.reopen()
                return
        self._active = writer
        self.segments = tuple(segments)
        self.end = self.synced_end = writer.segment.end_offset
        if self._tickets is not None:
            self._tickets.begin(self.end)

    def _keep_lost_offsets(self, writer: SegmentWriter, tail: Tail) -> None:
        """Where the file is shorter than it was when last synced, a gap says so for ever.

        Somebody may have acknowledged those offsets: they must not come back with other messages.
        """
        lost = (tail.end_offset, tail.marked_offset)
        now_us = self.clock.now_us()
        reason = "the file was shorter than when it was last synced"
        try:
            writer.append(gap_frames(lost, None, reason, now_us), now_us)
            writer.sync()
        finally:
            writer.abandon()

    def close_segments(self) -> None:
        """Sync what was written and let go of the files, until `reopen`."""
        for writer in (*self._retired, self._active):
            writer.close()
        self._retired.clear()

    def close(self) -> None:
        """Write and sync everything, and let go of the files: see `Log.close`."""
        if self._pid != os.getpid():
            return
        try:
            self.whole(self._close_locked)
        finally:
            if self.is_closed and self._owns_scheduler:
                self.scheduler.close()

    def _close_locked(self) -> None:
        with self.sync_lock, self.lock:
            self._close()

    def _close(self) -> None:
        if self.is_closed:
            return
        # What is not written by then is lost, and who put it was not promised more.
        self.failure = self.failure or self._loss
        if self.failure is None:
            self.flush_buffer()
        failure, self.failure = self.failure, Closing(f"{self.directory} was closed")
        self.is_closed = True
        try:
            if failure is None:
                self.close_segments()
                self.synced_end = self.active.end_offset
        finally:
            for writer in (*self._retired, self._active):
                writer.abandon()

    def disown(self) -> None:
        """In a forked child: the files belong to the parent, which goes on writing to them."""
        # Threads that the child does not have may hold the old ones.
        self.replacing, self.sync_lock, self.lock = (threading.Lock() for _ in range(3))
        self.failure = Closing(f"{self.directory} was opened before the fork: open it in the child")


def _codec(settings: StorageSettings) -> AnyCodec:
    return compression_of(settings.codec, settings.compression_level, settings.compression_bytes_min)


def _missing_end(segment: Segment, tail: Tail) -> Corruption:
    """Without its end, the records of some state would bring about another one: that is for a repair."""
    return Corruption(
        "the file is shorter than it was when last synced",
        path=segment.path,
        position=tail.end,
        offsets=(tail.end_offset, tail.marked_offset),
    )


_open_writers: "weakref.WeakSet[LogWriter]" = weakref.WeakSet()


def _disown_all() -> None:
    for writer in _open_writers:
        writer.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
