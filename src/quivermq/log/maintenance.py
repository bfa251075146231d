"""What changes a log elsewhere than at its growing end: retention, truncation and replacement.

It holds the locks of the writer while it decides and acts. How other bytes get into the place of a segment
is in `rewriting.py`.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from quivermq.disk import Buffer, ordered
from quivermq.errors import Conflict, DiskRefused, NotFound, QuiverError, StorageFailed
from quivermq.log.opening import recover_directory, remove_segment
from quivermq.log.reader import LogReader
from quivermq.log.rewriting import (
    discard_copy,
    find_cut,
    find_replacement,
    make_cut,
    show_copy,
    write_copy,
)
from quivermq.log.writer import RETRY_S, LogWriter
from quivermq.model.stats import Replaced
from quivermq.reentry import entered
from quivermq.segment import Segment
from quivermq.settings import StorageSettings


class RetentionResult(NamedTuple):
    """What a log gave up."""

    segments: int = 0
    messages: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "RetentionResult":
        return cls(
            segments=len(segments),
            messages=sum(segment.messages for segment in segments),
            bytes=sum(segment.end for segment in segments),
        )


def removable(
    segments: Sequence[Segment], settings: StorageSettings, *, now_us: int, floor: int | None, finished: int
) -> int:
    """How many of the oldest segments may go.

    `segments` are all of a log, oldest first; the last one is active and stays. `floor` is the first
    offset that somebody still needs; None when nobody needs any. What lies before `finished` goes
    whatever the limits say.
    """
    kept = RetentionResult.of(segments)
    for index, segment in enumerate(segments[:-1]):
        is_needed = floor is not None and segment.end_offset > floor
        is_finished = segment.end_offset <= finished
        if is_needed or (kept.segments <= settings.segments_min and not is_finished):
            return index
        if not (
            is_finished
            or _is_over(kept.segments, settings.segments_max)
            or _is_over(kept.bytes, settings.retention_bytes)
            or _is_over(kept.messages, settings.retention_messages)
            or is_expired(segment, now_us, settings)
        ):
            return index
        kept = RetentionResult(
            kept.segments - 1, kept.messages - segment.messages, kept.bytes - segment.end
        )
    return max(0, len(segments) - 1)


def is_expired(segment: Segment, now_us: int, settings: StorageSettings) -> bool:
    """Whether the segment's newest frame is older than the log keeps any.

    Never for a segment whose newest frame cannot be read: what is damaged waits for its repair.
    """
    if settings.retention_ms is None:
        return False
    newest_us = segment.last_append_time()
    return newest_us is not None and now_us - newest_us > settings.retention_ms * 1000


def _is_over(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit


class LogMaintenance:
    """Removes and replaces segments of the log that a writer has open."""

    def __init__(self, writer: LogWriter, reader: LogReader) -> None:
        self._writer = writer
        self._reader = reader
        # A segment went whose name may come back after a power loss.
        self._needs_directory_sync = False
        # Where a truncation in place has to end the log, should the disk refuse it in the middle.
        self._cut_end: int | None = None

    def retain(self, *, floor: int | None, finished: int) -> RetentionResult:
        """Remove the segments that the settings no longer keep: see `Log.retain`."""
        return self._writer.whole(partial(self._retain_locked, floor, finished))

    def _retain_locked(self, floor: int | None, finished: int) -> RetentionResult:
        writer = self._writer
        with writer.sync_lock:
            try:
                segments = self._retain(writer.clock.now_us(), floor=floor, finished=finished)
            except StorageFailed as error:
                # A segment that is not gone for good may come back: the next one must not go then.
                writer.failure = error
                raise
        return RetentionResult.of(segments)

    def _retain(self, now_us: int, *, floor: int | None, finished: int) -> Sequence[Segment]:
        writer = self._writer
        with writer.lock:
            writer.check_usable()
            # On a full disk nothing makes room but this: what has to wait for room waits.
            with suppress(DiskRefused):
                writer.flush_buffer()
                active = writer.active
                is_finished = active.base_offset < active.end_offset <= finished
                if is_finished or is_expired(active, now_us, writer.settings):
                    writer.roll()
        writer.sync_written()
        segments = writer.segments
        segments = segments[
            : removable(segments, writer.settings, now_us=now_us, floor=floor, finished=finished)
        ]
        for segment in segments:
            self._remove_first(segment)
        return segments

    def _remove_first(self, segment: Segment) -> None:
        writer = self._writer
        if self._needs_directory_sync:
            writer.disk.sync_directory(writer.directory)
            self._needs_directory_sync = False
        # Hidden first: a reader must not be sent to a file that is about to go.
        with writer.lock:
            writer.segments = writer.segments[1:]
        try:
            remove_segment(writer.disk, writer.directory, segment.base_offset)
        except DiskRefused:
            # Segments must not vanish in another order than this one.
            if writer.disk.exists(segment.path):
                with writer.lock:
                    writer.segments = (segment, *writer.segments)
            else:
                self._needs_directory_sync = True
            raise

    def truncate(self, end: int, *, in_place: bool) -> None:
        """Remove every message from offset `end` on: see `Log.truncate`."""
        self._writer.whole(partial(self._truncate, end, in_place=in_place))

    def _truncate(self, end: int, *, in_place: bool) -> None:
        writer = self._writer
        with writer.sync_lock, writer.lock:
            writer.check_usable()
            writer.flush_buffer()
            self._reader.check_range(end)
            cut = find_cut(writer.segments, end)
            self._cut_end = end if in_place else None
            refusal: DiskRefused | None = None
            try:
                writer.close_segments()
                # Whatever happens now, nothing behind it is promised any more, and nobody is sent to a
                # file that is about to be another one.
                writer.end = writer.synced_end = end
                writer.segments = tuple(s for s in writer.segments if s.end_offset <= end)
                try:
                    make_cut(cut, in_place=in_place)
                except DiskRefused as error:
                    if in_place:
                        raise
                    refusal = error
                self._reopen()
            except QuiverError as error:
                writer.failure = error
                if isinstance(error, DiskRefused):
                    writer.is_half_cut = True
                    writer.scheduler.schedule(RETRY_S, self._finish_cut_due)
                raise
            if refusal is not None:
                raise refusal

    def _reopen(self) -> None:
        self._writer.damage = None
        self._writer.reopen()

    @entered
    def _finish_cut_due(self) -> None:
        """Make a truncation whole that the disk refused in the middle."""
        ordered(self._writer.disk, self._finish_cut)

    def _finish_cut(self) -> None:
        writer = self._writer
        with writer.sync_lock, writer.lock:
            if not writer.is_half_cut or writer.is_closed:
                return
            try:
                if self._cut_end is not None:
                    segments, _ = recover_directory(writer.disk, writer.directory, writer.settings)
                    make_cut(find_cut(segments, self._cut_end), in_place=True)
                self._reopen()
            except DiskRefused:
                writer.scheduler.schedule(RETRY_S, self._finish_cut_due)
                raise
            except QuiverError as error:
                writer.failure = error
                raise
            writer.is_half_cut, writer.failure = False, None

    def replace(self, base_offset: int, frames: Buffer, *, expected: str) -> Replaced:
        """Put other frames in the place of those of a sealed segment: see `Log.replace`."""
        return self._writer.whole(partial(self._replace, base_offset, frames, expected))

    def _replace(self, base_offset: int, frames: Buffer, expected: str) -> Replaced:
        writer = self._writer
        with writer.replacing:
            segment = self._sealed(base_offset)
            replacement = find_replacement(segment, frames, expected)
            if replacement is None:
                return Replaced(segment.end, segment.end)
            copy = write_copy(segment, replacement)
            try:
                with writer.sync_lock:
                    # What the new frames lack is in later ones: those must survive whatever these do.
                    writer.sync_written()
                    if segment not in writer.segments:
                        raise Conflict(
                            f"the segment {base_offset} of {writer.directory} was removed meanwhile"
                        )
                    try:
                        show_copy(copy, writer.lock, self._show)
                    except StorageFailed as error:
                        writer.failure = error
                        raise
            except QuiverError:
                discard_copy(segment)
                raise
            return Replaced(segment.end, copy.segment.end)

    def _sealed(self, base_offset: int) -> Segment:
        writer = self._writer
        with writer.sync_lock:
            # One that is full may still wait for its last sync.
            writer.sync_written()
        segments = writer.segments
        found = next((each for each in segments if each.base_offset == base_offset), None)
        if found is None:
            raise NotFound(f"no segment of {writer.directory} begins with offset {base_offset}")
        if found is segments[-1]:
            raise Conflict(
                f"the segment {base_offset} of {writer.directory} is still being written to:"
                " only those before it can be replaced"
            )
        return found

    def _show(self, new: Segment) -> None:
        segments = self._writer.segments
        self._writer.segments = tuple(new if s.base_offset == new.base_offset else s for s in segments)
