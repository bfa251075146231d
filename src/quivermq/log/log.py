"""A log as its users see it: an ordered run of segments that grows at its end.

`Log` encodes and checks what comes in, and hands the rest on: to a `LogWriter`, which has the state and the
locks, to a `LogReader`, and to `LogMaintenance` for what changes segments that are there already.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Buffer, Disk, SystemDisk
from quivermq.errors import Corruption, QuiverError
from quivermq.frame import ANONYMOUS, Frame, Headers, Producer, encode
from quivermq.log.entries import check_foreign_frame, check_frame, check_time, checked_entry, parse_only
from quivermq.log.flusher import Scheduler
from quivermq.log.maintenance import LogMaintenance, RetentionResult
from quivermq.log.reader import READ_BYTES, LogReader
from quivermq.log.writer import LogWriter
from quivermq.metrics import Histogram
from quivermq.model.messages import Record
from quivermq.model.stats import Replaced
from quivermq.segment import Segment
from quivermq.settings import Durability, StorageSettings


class Log:
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
        self._writer = LogWriter(
            disk or SystemDisk(),
            Path(directory),
            settings,
            clock=clock or SystemClock(),
            scheduler=scheduler,
            sync_time=sync_time,
            is_state=is_state,
        )
        self._reader = LogReader(self._writer)
        self._maintenance = LogMaintenance(self._writer, self._reader)
        # As `append`, for a message that `checked_entry` has seen. Bound once: topics live by this call.
        self.append_entry = self._writer.append_entry
        # Called with an offset, where somebody may be shown only what is durable: see `Commits.note`.
        self.show = self._writer.show

    # Appending.

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
        disk failed, the log is fenced, and only opening it again shows whether the message is there.
        """
        writer, rest = self._writer, None
        # A message that is just a value is spared the checks of what it does not have.
        if (
            key is not None
            or headers
            or timestamp is not None
            or expires_at is not None
            or dedup_id is not None
            or type(value) is not bytes
            or len(value) > writer.settings.message_bytes_max
        ):
            if timestamp is not None:
                check_time("timestamp", timestamp)
            if expires_at is not None:
                check_time("expires_at", expires_at)
            value, rest = checked_entry(
                value, key, headers, timestamp, expires_at, dedup_id, writer.settings
            )
        return writer.append_entry(value, rest, durability)

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
        writer = self._writer
        frame = encode(
            values,
            timestamp=writer.clock.now_us() if timestamp is None else timestamp,
            keys=keys,
            headers=headers,
            expires_at=expires_at,
            dedup_ids=dedup_ids,
            origin_ids=origin_ids,
            codec=writer.codec,
            producer=producer,
            flags=flags,
            raw_bytes_max=writer.settings.frame_raw_bytes_max,
        )
        if not is_moved:
            check_frame(frame, writer.settings)
        return writer.append_frames([frame], durability)

    def append_batches(
        self, batches: Iterable[Mapping[str, Any]], *, durability: Durability | None = None
    ) -> int:
        """Append several batches, one frame each, all or nothing, and return the first offset.

        A batch is the columns of `append_many`, by name.
        """
        return self._writer.append_frames(self.encoded(batches), durability)

    def encoded(self, batches: Iterable[Mapping[str, Any]]) -> list[Frame]:
        """Batches as the frames that would be appended. Raises InvalidRequest."""
        now_us, codec, settings = self._writer.clock.now_us(), self._writer.codec, self.settings
        frames: list[Frame] = []
        for batch in batches:
            columns = {"timestamp": now_us, **batch}
            frame = encode(codec=codec, raw_bytes_max=settings.frame_raw_bytes_max, **columns)
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
        return self._writer.append_frames([frame], durability)

    def staging(self, frames: Sequence[Frame]) -> AbstractContextManager[Callable[[], int]]:
        """Write frames where nobody sees them yet, and hold the log meanwhile.

        What this yields shows them, and returns their first offset; leaving without it takes them away.
        Whoever stages in several logs of a topic does so by partition and lane. Raises DiskRefused.
        """
        return self._writer.staging(frames)

    # Durability, settings and the end.

    def flush(self) -> None:
        """Hand everything buffered to the operating system: after that, it survives kill -9."""
        self._writer.flush()

    def sync(self, end: int | None = None) -> None:
        """Return once everything before `end` survives power loss; without it, all that was appended.

        Threads that come together share one sync.
        """
        self._writer.sync(end)

    @property
    def synced_end(self) -> int:
        """Everything before this offset was synced: it survives if anything behind it does."""
        return self._writer.synced_end

    @property
    def durable_end(self) -> int:
        """Everything before this offset survives power loss."""
        return self._writer.durable_end

    def close(self) -> None:
        """Write and sync everything, and let go of the files. Closing twice is allowed.

        Raises DiskFull when buffered messages cannot be written: they are kept, and `close` can be
        called again once there is room.
        """
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed and has to be opened again."""
        return self._writer.is_closed

    @property
    def failure(self) -> QuiverError | None:
        """Why nothing can be appended any more, until the log is opened again."""
        return self._writer.failure

    @property
    def disk(self) -> Disk:
        return self._writer.disk

    @property
    def directory(self) -> Path:
        return self._writer.directory

    @property
    def settings(self) -> StorageSettings:
        return self._writer.settings

    def configure(self, settings: StorageSettings) -> None:
        """Go on with other settings. What is written already stays as it is."""
        self._writer.configure(settings)

    # What changes segments that are there already.

    def roll(self) -> None:
        """Begin a new segment, unless the last one is empty, so that what came before can go as a whole."""
        with self._writer.lock:
            self._writer.check_usable()
            self._writer.flush_buffer()
            if self._writer.active.end:
                self._writer.roll()

    def retain(self, *, floor: int | None = None, finished: int = 0) -> RetentionResult:
        """Remove the segments that the settings no longer keep, but none that holds `floor` or more.

        `floor` is the first offset that somebody still needs; None when nobody needs any. What lies
        before `finished` goes in any case, the segment that is being written to included.
        """
        return self._maintenance.retain(floor=floor, finished=finished)

    def truncate(self, end: int, *, in_place: bool = False) -> None:
        """Remove every message from offset `end` on. A frame that `end` cuts through is divided.

        Raises DiskRefused when there is no room for the part that stays: the log then ends somewhere
        behind `end`, and can be used as before.

        With `in_place` nothing needs room, because the last segment is not copied: for frames that nobody
        can have mapped, and an `end` that divides none. Should the disk refuse even that, everything is
        refused until it is done, which is tried again and again.
        """
        self._maintenance.truncate(end, in_place=in_place)

    def replace(self, base_offset: int, frames: Buffer, *, expected: str) -> Replaced:
        """Put other frames in the place of those of a sealed segment that take the same offsets.

        `expected` is `stamp_of` the headers of the frames that are to go. Everybody reads on meanwhile, and
        after a crash the old segment is there or the new one, whole. Raises Conflict when the frames were
        changed since, NotFound when no segment begins with that offset, and InvalidRequest for frames that
        may not stand there.
        """
        return self._maintenance.replace(base_offset, frames, expected=expected)

    # Reading.

    @property
    def start(self) -> int:
        """The first offset that is there; equal to `end` when there is none."""
        return self._reader.start

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        return self._writer.end

    def first_from(self, offset: int) -> int:
        """The first offset from there on that is there."""
        return self._reader.first_from(offset)

    @property
    def size_bytes(self) -> int:
        """How many bytes of frames there are."""
        return self._reader.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        return self._writer.segments

    @property
    def damage(self) -> Corruption | None:
        """What was found to be wrong with the bytes: nothing behind it is served."""
        return self._writer.damage

    def frames(self, start: int | None = None, *, mapped: bool = False) -> Iterator[Frame]:
        """The frames from the one that holds `start` up to the end there is when it gets there.

        With `mapped` they lie in mapped memory, for `arrow_batch`, and no byte is copied. That is
        for bulk work in a process that may be restarted: a sector that cannot be read ends it.
        Raises OffsetOutOfRange, Corruption, StorageFailed.
        """
        return self._reader.frames(start, mapped=mapped)

    def read(self, start: int, *, bytes_max: int = READ_BYTES) -> list[Frame]:
        """Frames from the one that holds `start`, up to `bytes_max`, but at least one if there is one."""
        return self._reader.read(start, bytes_max=bytes_max)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes the messages from `offset` on take, by the segments' sizes."""
        return self._reader.bytes_from(offset)

    def records(self, start: int | None = None, *, limit: int | None = None) -> Iterator[Record]:
        """The messages from `start` on, one by one, without those that compaction has taken out."""
        return self._reader.records(start, limit=limit)

    def find_time(self, timestamp: int) -> int:
        """The first offset whose message is not older than `timestamp` (µs); `end` when all are."""
        return self._reader.find_time(timestamp)


def append_together(parts: Sequence[tuple[Log, Sequence[Frame]]]) -> list[int]:
    """Append frames to several logs, to all of them or, when one has no room, to none.

    Returns the first offset in each. The logs come in the order in which everybody takes them.
    """
    with ExitStack() as held:
        staged = [held.enter_context(log.staging(frames)) for log, frames in parts]
        return [show() for show in staged]
