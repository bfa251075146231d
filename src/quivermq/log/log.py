"""An ordered run of segments that grows at its end: what can be done to it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from quivermq.disk import Buffer
from quivermq.errors import Conflict, DiskRefused, NotFound, QuiverError, StorageFailed
from quivermq.frame import (
    ANONYMOUS,
    Frame,
    Headers,
    Producer,
    Rest,
    compression_of,
    encode,
)
from quivermq.log.entries import (
    check_durability,
    check_foreign_frame,
    check_frame,
    check_time,
    checked_entry,
    parse_only,
)
from quivermq.log.maintenance import Removed, is_expired, removable
from quivermq.log.opening import recover_directory, remove_segment
from quivermq.log.rewriting import (
    Replaced,
    discard,
    find_cut,
    find_replacement,
    make_cut,
    put_in_place,
    write_copy,
)
from quivermq.log.writer import RETRY_S, LogWriter
from quivermq.reentry import entered
from quivermq.segment import Segment
from quivermq.settings import Durability, StorageSettings


class Log(LogWriter):
    """A log open for writing. Thread-safe. The caller holds the lock of the data directory.

    After a failed sync, or a write that failed for another reason than a full disk, the log is
    fenced: it can be read and closed, and every append raises what happened, until it is reopened.
    """

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
        check_time("timestamp", timestamp)
        check_time("expires_at", expires_at)
        entry = checked_entry(value, key, headers, timestamp, expires_at, dedup_id, self.settings)
        return self.append_entry(*entry, durability)

    def append_entry(self, value: bytes, rest: Rest | None, durability: Durability | None) -> int:
        """As `append`, for a message that `checked_entry` has seen."""
        word = durability or self.settings.durability
        if word == "os":
            return self._append_one(value, rest)
        if word == "buffered":
            return self._append_to_buffer(value, rest)
        check_durability(word)
        self._check_usable()
        return self._commit.join((value, rest))

    def append_many(
        self,
        values: Sequence[bytes],
        *,
        timestamp: int | Sequence[int] | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        expires_at: Sequence[int | None] | None = None,
        dedup_ids: Sequence[str | None] | None = None,
        origin_ids: Sequence[str | None] | None = None,
        producer: Producer = ANONYMOUS,
        flags: int = 0,
        durability: Durability | None = None,
        is_moved: bool = False,
    ) -> int:
        """Append a batch as one frame, all or nothing, and return its first offset.

        With `is_moved` it was let in before, and comes from another log of the queue: the limits for what
        comes from outside, which may have been wider then, must not keep it from getting here.
        """
        frame = encode(
            values,
            timestamp=self._clock.now_us() if timestamp is None else timestamp,
            keys=keys,
            headers=headers,
            expires_at=expires_at,
            dedup_ids=dedup_ids,
            origin_ids=origin_ids,
            codec=self._codec,
            producer=producer,
            flags=flags,
            raw_bytes_max=self.settings.frame_raw_bytes_max,
        )
        if not is_moved:
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
        frames = self.encoded(batches)
        offset = self._append_frames(frames)
        if word == "fsync":
            self.sync(offset + sum(map(len, frames)))
        return offset

    def encoded(self, batches: Iterable[Mapping[str, Any]]) -> list[Frame]:
        """Batches as the frames that would be appended. Raises InvalidRequest."""
        now_us, settings = self._clock.now_us(), self.settings
        frames: list[Frame] = []
        for batch in batches:
            columns = {"timestamp": now_us, **batch}
            frame = encode(codec=self._codec, raw_bytes_max=settings.frame_raw_bytes_max, **columns)
            check_frame(frame, settings)
            frames.append(frame)
        return frames

    def append_frame(
        self, frame: Buffer | Frame, *, flags: int = 0, durability: Durability | None = None
    ) -> int:
        """Append a frame that came from outside, its body as it is, and return its first offset.

        It has no flags itself; `flags` are what the queue says of it.
        """
        if not isinstance(frame, Frame):
            frame = parse_only(frame, self.settings)
        check_foreign_frame(frame, self.settings)
        if flags:
            frame = Frame(frame.header._replace(flags=flags), frame.stored)
        return self._append_frame(frame, durability)

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
            self._codec = compression_of(
                settings.codec, settings.compression_level, settings.compression_bytes_min
            )

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
                    self._scheduler.schedule(RETRY_S, self._finish_cut_due)
                raise
            if refusal is not None:
                raise refusal

    def _go_on_behind_cut(self) -> None:
        self._damage = None
        self._writer = self._open()
        self._next_offset = self._synced_end = self._writer.segment.end_offset

    @entered
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
                self._scheduler.schedule(RETRY_S, self._finish_cut_due)
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
