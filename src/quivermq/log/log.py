"""An ordered run of segments that grows at its end.

Three roles, each held by one thread at a time: anybody reads; whoever holds `_lock` writes; whoever
holds `_sync_lock` makes durable what was written, while others go on writing. Single messages gather,
at `buffered` in `_buffer` and at `fsync` in a group commit, and become one frame when they are written.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, Self, TypeVar

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Buffer, Disk, SystemDisk
from quivermq.errors import Closing, Conflict, Corruption, DiskRefused, NotFound, QuiverError, StorageFailed
from quivermq.frame import (
    ANONYMOUS,
    Codec,
    Frame,
    Headers,
    Producer,
    codec_named,
    encode,
    value_frame_bytes,
)
from quivermq.log.commit import GroupCommit
from quivermq.log.entries import Entry, Gathered, Rest, checked_entry, lone_frame
from quivermq.log.flusher import Flusher, Scheduler
from quivermq.log.gap import gap_frames
from quivermq.log.limits import check_durability, check_foreign_frame, check_frame, parse_only
from quivermq.log.opening import recover_directory, remove_segment
from quivermq.log.reader import LogReader
from quivermq.log.replacement import Replaced, discard, find_replacement, put_in_place, write_copy
from quivermq.log.retention import Removed, is_expired, removable
from quivermq.log.truncation import find_cut, make_cut
from quivermq.metrics import Histogram
from quivermq.segment import Segment, SegmentWriter, Tail
from quivermq.settings import Durability, StorageSettings

Written = TypeVar("Written")

# Each segment that waits for the next sync has two files open.
_RETIRED_MAX = 16
# How long to wait before buffered messages are written to a disk that was full.
_RETRY_S = 1.0


class Log(LogReader):
    """A log open for writing. Thread-safe. The caller holds the lock of the data directory.

    After a failed sync, or a write that failed for another reason than a full disk, the log is
    fenced: it can be read and closed, and every append raises what happened, until it is reopened.
    """

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
        self._codec = codec_named(settings.codec)
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
        self.disk.make_directory(self.directory)
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

    def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        expires_at: int | None = None,
        dedup_id: str | None = None,
        durability: Durability | None = None,
    ) -> int:
        """Append one message and return its offset, once it is as durable as asked for.

        Raises InvalidRequest or DiskRefused: the message is then not in the log. Raises StorageFailed: the
        disk failed, the log is fenced, and only opening it again tells whether the message is there.
        """
        settings = self.settings
        rest: Rest | None = None
        # A message that is just a value is spared the checks of what it does not have.
        if not (
            key is None
            and headers is None
            and timestamp is None
            and expires_at is None
            and dedup_id is None
            and type(value) is bytes
            and len(value) <= settings.message_bytes_max
        ):
            value, rest = checked_entry(value, key, headers, timestamp, expires_at, dedup_id, settings)
        word = durability or settings.durability
        if word == "buffered":
            return self._append_to_buffer(value, rest)
        if word == "fsync":
            self._check_usable()
            return self._commit.join((value, rest))
        if word != "os":
            check_durability(word)
        if rest is None and self._codec is Codec.NONE:
            return self._append_value(value)
        return self._append_frames(self._frames([(value, rest)]))

    def append_many(
        self,
        values: Sequence[bytes],
        *,
        timestamp: int | Sequence[int] | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        expires_at: Sequence[int | None] | None = None,
        dedup_ids: Sequence[str | None] | None = None,
        producer: Producer = ANONYMOUS,
        durability: Durability | None = None,
    ) -> int:
        """Append a batch as one frame, all or nothing, and return its first offset."""
        frame = encode(
            values,
            timestamp=self._clock.now_us() if timestamp is None else timestamp,
            keys=keys,
            headers=headers,
            expires_at=expires_at,
            dedup_ids=dedup_ids,
            codec=self._codec,
            producer=producer,
            raw_bytes_max=self.settings.frame_raw_bytes_max,
        )
        check_frame(frame, self.settings)
        return self._append_frame(frame, durability)

    def append_batches(
        self, batches: Iterable[Mapping[str, Any]], *, durability: Durability | None = None
    ) -> int:
        """Append several batches, one frame each, all or nothing, and return the first offset.

        A batch is the columns of `append_many`, by name.
        """
        word = durability or self.settings.durability
        check_durability(word)
        now_us, settings = self._clock.now_us(), self.settings
        frames: list[Frame] = []
        for batch in batches:
            columns = {"timestamp": now_us, **batch}
            frame = encode(codec=self._codec, raw_bytes_max=settings.frame_raw_bytes_max, **columns)
            check_frame(frame, settings)
            frames.append(frame)
        offset = self._append_frames(frames)
        if word == "fsync":
            self.sync(offset + sum(map(len, frames)))
        return offset

    def append_frame(self, frame: Buffer | Frame, *, durability: Durability | None = None) -> int:
        """Append a frame that came from outside, its body as it is, and return its first offset."""
        if not isinstance(frame, Frame):
            frame = parse_only(frame, self.settings)
        check_foreign_frame(frame, self.settings)
        return self._append_frame(frame, durability)

    def _prepare(self) -> None:
        if self._is_half_cut:
            # Nobody knows what there is: an answer would leave messages out.
            self._check_usable()
        if self._buffer.values and self._failure is None:
            self.flush()

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

    def roll(self) -> None:
        """Begin a new segment, unless the last one is empty, so that what came before can go as a whole."""
        with self._lock:
            self._check_usable()
            self._flush_buffer()
            if self._writer.segment.end:
                self._roll()

    def configure(self, settings: StorageSettings) -> None:
        """Go on with other settings. What is written already stays as it is."""
        with self._sync_lock, self._lock:
            self.settings = settings
            self._codec = codec_named(settings.codec)

    def retain(self, *, floor: int | None = None, finished: int = 0) -> Removed:
        """Remove the segments that the settings no longer keep, but none that holds `floor` or more.

        `floor` is the first offset that somebody still needs; None when nobody needs any. What lies
        before `finished` goes in any case, the segment that is being written to included.
        """
        with self._sync_lock:
            try:
                segments = self._retain(floor, finished, self._clock.now_us())
            except StorageFailed as error:
                # A segment that is not gone for good may come back: the next one must not go then.
                self._failure = error
                raise
        return Removed.of(segments)

    def _retain(self, floor: int | None, finished: int, now_us: int) -> Sequence[Segment]:
        with self._lock:
            self._check_usable()
            # On a full disk nothing makes room but this: what has to wait for room waits.
            with suppress(DiskRefused):
                self._flush_buffer()
                active = self._writer.segment
                is_finished = active.base_offset < active.end_offset <= finished
                if is_finished or is_expired(active, now_us, self.settings):
                    self._roll()
        self._sync()
        segments = self._segments[: removable(self._segments, now_us, floor, finished, self.settings)]
        for segment in segments:
            self._remove_first(segment)
        return segments

    def _remove_first(self, segment: Segment) -> None:
        if self._owes_directory_sync:
            self.disk.sync_directory(self.directory)
            self._owes_directory_sync = False
        # Hidden first: a reader must not be sent to a file that is about to go.
        with self._lock:
            self._segments = self._segments[1:]
        try:
            remove_segment(self.disk, self.directory, segment.base_offset)
        except DiskRefused:
            # Segments must not vanish in another order than this one.
            if self.disk.exists(segment.path):
                with self._lock:
                    self._segments = (segment, *self._segments)
            else:
                self._owes_directory_sync = True
            raise

    def truncate(self, end: int, *, in_place: bool = False) -> None:
        """Remove every message from offset `end` on. A frame that `end` cuts through is divided.

        Raises DiskRefused when there is no room for the part that stays: the log then ends somewhere
        behind `end`, and can be used as before.

        With `in_place` nothing needs room, because the last segment is not copied: for frames that nobody
        can have mapped, and an `end` that divides none. Should the disk refuse even that, everything is
        refused until it is done, which is tried again and again.
        """
        with self._sync_lock, self._lock:
            self._check_usable()
            self._flush_buffer()
            self._check_range(end)
            cut = find_cut(self._segments, end)
            self._owed_end = end if in_place else None
            refusal: DiskRefused | None = None
            try:
                self._close_writers()
                # Whatever happens now, nothing behind it is promised any more, and nobody is sent to a
                # file that is about to be another one.
                self._next_offset = self._synced_end = end
                self._segments = tuple(s for s in self._segments if s.end_offset <= end)
                try:
                    make_cut(cut, in_place=in_place)
                except DiskRefused as error:
                    if in_place:
                        raise
                    refusal = error
                self._go_on_behind_cut()
            except QuiverError as error:
                self._failure = error
                if isinstance(error, DiskRefused):
                    self._is_half_cut = True
                    self._scheduler.schedule(_RETRY_S, self._finish_cut_due)
                raise
            if refusal is not None:
                raise refusal

    def _go_on_behind_cut(self) -> None:
        self._damage = None
        self._writer = self._open()
        self._next_offset = self._synced_end = self._writer.segment.end_offset

    def _finish_cut_due(self) -> None:
        """Make a truncation whole that the disk refused in the middle."""
        with self._sync_lock, self._lock:
            if not self._is_half_cut or self._is_closed:
                return
            try:
                if self._owed_end is not None:
                    segments, _ = recover_directory(self.disk, self.directory, self.settings)
                    make_cut(find_cut(segments, self._owed_end), in_place=True)
                self._go_on_behind_cut()
            except DiskRefused:
                self._scheduler.schedule(_RETRY_S, self._finish_cut_due)
                raise
            except QuiverError as error:
                self._failure = error
                raise
            self._is_half_cut, self._failure = False, None

    def replace(self, base_offset: int, frames: Buffer, *, expected: str) -> Replaced:
        """Put other frames in the place of those of a sealed segment that take the same offsets.

        `expected` is `stamp_of` the headers of the frames that are to go. Everybody reads on meanwhile, and
        after a crash the old segment is there or the new one, whole. Raises Conflict when the frames were
        changed since, NotFound when no segment begins with that offset, and InvalidRequest for frames that
        may not stand there.
        """
        with self._replacing:
            segment = self._sealed(base_offset)
            replacement = find_replacement(segment, frames, expected)
            if replacement is None:
                return Replaced(segment.end, segment.end)
            copy = write_copy(segment, replacement)
            try:
                with self._sync_lock:
                    # What the new frames lack is in later ones: those must survive whatever these do.
                    self._sync()
                    if not super()._still_has(segment):
                        raise Conflict(
                            f"the segment {base_offset} of {self.directory} was removed meanwhile"
                        )
                    try:
                        put_in_place(copy, self._lock, self._show)
                    except StorageFailed as error:
                        self._failure = error
                        raise
            except QuiverError:
                discard(copy)
                raise
            return Replaced(segment.end, copy.segment.end)

    def _sealed(self, base_offset: int) -> Segment:
        with self._sync_lock:
            # One that is full may still wait for its last sync.
            self._sync()
        segments = self._segments
        found = next((each for each in segments if each.base_offset == base_offset), None)
        if found is None:
            raise NotFound(f"no segment of {self.directory} begins with offset {base_offset}")
        if found is segments[-1]:
            raise Conflict(
                f"the segment {base_offset} of {self.directory} is still being written to:"
                " only those before it can be replaced"
            )
        return found

    def _show(self, new: Segment) -> None:
        self._segments = tuple(new if s.base_offset == new.base_offset else s for s in self._segments)

    def _still_has(self, segment: Segment) -> bool:
        # Whoever replaces it holds the lock until everybody can see the new one.
        with self._lock:
            return super()._still_has(segment)

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

    # The writing role: these are called with `_lock` held.

    def _check_usable(self) -> None:
        if self._failure is not None:
            # A copy, because one traceback would grow with every caller that is told.
            raise copy(self._failure)

    def _put(self, frames: Sequence[Frame]) -> int:
        """Write frames behind everything that came before, and return the first offset."""
        frame_bytes = sum(frame.header.frame_bytes for frame in frames)
        return self._write(SegmentWriter.append, frames, frame_bytes)

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
            self._sync_is_scheduled = True
            self._scheduler.schedule(self.settings.fsync_interval_ms / 1000, self._sync_due)
        return base

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

    # The ways in.

    def _append_to_buffer(self, value: bytes, rest: Rest | None) -> int:
        settings = self.settings
        with self._lock:
            if self._failure is not None:
                self._check_usable()
            buffer = self._buffer
            if len(buffer.values) >= settings.batch_messages or buffer.bytes >= settings.batch_bytes:
                # Before the message is taken: if there is no room, it must not have been.
                self._flush_buffer()
                buffer = self._buffer
            if not self._flush_is_scheduled:
                self._flush_is_scheduled = True
                self._scheduler.schedule(settings.linger_ms / 1000, self._flush_due)
            offset = self._writer.segment.end_offset + len(buffer.values)
            buffer.add(value, rest)
            self._next_offset = offset + 1
            return offset

    def _append_frame(self, frame: Frame, durability: Durability | None) -> int:
        word = durability or self.settings.durability
        check_durability(word)
        offset = self._append_frames([frame])
        if word == "fsync":
            # Not by the group commit: it may fail because of messages that are not in the log yet.
            with self._sync_lock:
                if self._synced_end < offset + len(frame):
                    self._sync()
        return offset

    def _append_frames(self, frames: Sequence[Frame]) -> int:
        with self._lock:
            self._check_usable()
            self._flush_buffer()
            return self._put(frames)

    def _append_value(self, value: bytes) -> int:
        """What `_append_frames` does, for a message that is just a value: only bytes are made of it."""
        with self._lock:
            if self._buffer.values:
                self._check_usable()
                self._flush_buffer()
            return self._write(SegmentWriter.append_value, value, value_frame_bytes(value))

    def _commit_group(self, entries: list[Entry]) -> int:
        base = self._append_frames(self._frames(entries))
        with self._sync_lock:
            # Whoever synced meanwhile, closing the log perhaps, has done it for these too.
            if self._synced_end < base + len(entries):
                self._sync()
        return base

    def _frames(self, entries: list[Entry]) -> list[Frame]:
        now_us, codec, settings = self._clock.now_us(), self._codec, self.settings
        if len(entries) == 1:
            return [lone_frame(entries[0], now_us, codec, settings)]
        return Gathered(entries).frames(now_us, codec, settings)

    def _flush_due(self) -> None:
        self._flush_is_scheduled = False
        if self._failure is None:
            try:
                self.flush()
            except DiskRefused:
                # Nobody may append again and so ask for another attempt.
                self._flush_is_scheduled = True
                self._scheduler.schedule(_RETRY_S, self._flush_due)
                raise

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


def _missing_end(segment: Segment, tail: Tail) -> Corruption:
    """Without its end, the records of some state would bring about another one: that is for a repair."""
    return Corruption(
        "the file is shorter than it was when last synced",
        path=segment.path,
        position=tail.end,
        offsets=(tail.end_offset, tail.marked_offset),
    )


_open_logs: "weakref.WeakSet[Log]" = weakref.WeakSet()


def _disown() -> None:
    """In a forked child: the files belong to the parent, which goes on writing to them."""
    for log in _open_logs:
        # Threads that the child does not have may hold the old ones.
        log._lock, log._sync_lock, log._replacing = (threading.Lock() for _ in range(3))
        log._failure = Closing(f"{log.directory} was opened before the fork: open it in the child")


os.register_at_fork(after_in_child=_disown)
