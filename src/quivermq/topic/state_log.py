"""A log of changes to some state, kept short by snapshots.

What a change means is for its owner to know. A snapshot is a run of records that together bring the
state about from nothing; once it is durable, everything before it is dropped.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from quivermq.errors import InvalidFrame, QuiverError, StorageFailed
from quivermq.frame import Frame
from quivermq.log import DataDirectory, Log
from quivermq.log.entries import check_size
from quivermq.settings import Durability, StorageSettings

logger = logging.getLogger(__name__)

_CHANGE, _BEGIN, _PART, _END = b"c", b"b", b"p", b"e"

# A snapshot is due once this much was written since the last one, or twice as much as that one took.
_SNAPSHOT_BYTES_MIN = 2 * 1024 * 1024
# More than any log has.
_DOUBTED_BYTES = 2**62
_PART_BYTES = 512 * 1024
# What a frame takes besides the record in it.
_FRAME_BYTES = 96


class StateLog:
    """Whoever changes the state appends, one at a time; anybody may sync."""

    def __init__(self, directory: DataDirectory, name: str) -> None:
        self.name = name
        self._directory = directory
        self._settings = _settings(directory.settings)
        self.log: Log = directory.log(name, self._settings, is_state=True)
        self._grown_bytes = 0
        self._snapshot_bytes = 0

    def replay(self) -> list[bytes]:
        """The records that bring the state about: the last whole snapshot and what follows it."""
        replayed = replay(self.log.frames())
        self._grown_bytes += replayed.grown_bytes
        if replayed.snapshot_bytes is not None:
            self._grown_bytes, self._snapshot_bytes = replayed.grown_bytes, replayed.snapshot_bytes
        return replayed.records

    def apply(self, apply: Callable[[bytes], None]) -> None:
        """Call `apply` with each record. Raises StorageFailed where it is none that this release writes."""
        for record in self.replay():
            try:
                apply(record)
            except (InvalidFrame, IndexError, ValueError) as error:
                raise StorageFailed(
                    f"{self.log.directory} has a record that this release does not understand: {error}",
                    path=self.log.directory,
                ) from error

    def append(self, record: bytes, durability: Durability = "os") -> int:
        """Note a change and return the end of the log behind it, for `sync`.

        With "fsync" it is only written here: the caller syncs when it holds no lock any more.
        """
        size = len(record) + len(_CHANGE)
        check_size(size, self._settings.message_bytes_max, "message_bytes_max")
        self._grown_bytes += size + _FRAME_BYTES
        # What `Log.append` would look for besides, a record of ours cannot have.
        written: Durability = "buffered" if durability == "buffered" else "os"
        return self.log.append_entry(_CHANGE + record, None, written) + 1

    def sync(self, end: int | None = None) -> None:
        """Return once every change before `end` survives power loss."""
        self.log.sync(end)

    @property
    def wants_snapshot(self) -> bool:
        """Whether so much was written that a snapshot would make the next opening quicker."""
        return self._grown_bytes > max(_SNAPSHOT_BYTES_MIN, 2 * self._snapshot_bytes)

    def doubt(self) -> None:
        """Nobody knows whether the last change is written: want a snapshot, which says what holds."""
        self._grown_bytes = _DOUBTED_BYTES

    def try_snapshot(self, records: Iterable[bytes]) -> None:
        """As `snapshot`, but a failure is no reason for the caller to fail, whose change is written."""
        try:
            self.snapshot(records)
        except QuiverError as error:
            logger.warning("no snapshot of %s: %s", self.name, error)
            # Not again with the very next change.
            self._grown_bytes = 0

    def snapshot(self, records: Iterable[bytes]) -> int:
        """Put these records in place of everything so far. Returns how many bytes of files that freed."""
        log = self.log
        log.roll()
        start = log.append(_BEGIN, durability="os")
        size = 0
        for record in records:
            size += len(record)
            log.append(_PART + record, durability="os")
        end = log.append(_END, durability="os") + 1
        log.sync(end)
        self._grown_bytes, self._snapshot_bytes = 0, size
        return log.retain(finished=start).bytes

    def remove(self) -> None:
        """Take the log's files away."""
        self._directory.remove(self.name)


class Replayed(NamedTuple):
    """The records of a state log, and what decides when its next snapshot is due."""

    records: list[bytes]
    grown_bytes: int
    """What was written since the last snapshot."""
    snapshot_bytes: int | None
    """What that one took; None when there is none."""


def replay(frames: Iterable[Frame]) -> Replayed:
    """The last whole snapshot and what follows it. Needs no lock, so whoever only looks on may call it."""
    records: list[bytes] = []
    begun: int | None = None
    grown_bytes, snapshot_bytes = 0, None
    for frame in frames:
        for value in frame.values():
            kind = value[:1]
            if kind == _BEGIN:
                if begun is not None:
                    del records[begun:]
                begun = len(records)
            elif kind == _END and begun is not None:
                del records[:begun]
                begun = None
                grown_bytes, snapshot_bytes = 0, sum(map(len, records))
            elif kind == _PART:
                records.append(value[1:])
            elif kind == _CHANGE:
                if begun is not None:
                    # The process died before the snapshot's end: the records before it still count.
                    del records[begun:]
                    begun = None
                records.append(value[1:])
                grown_bytes += len(value) + _FRAME_BYTES
    if begun is not None:
        del records[begun:]
    return Replayed(records, grown_bytes, snapshot_bytes)


def changes_of(frame: Frame) -> list[bytes]:
    """The changes of a frame, without what a snapshot says once more."""
    return [value[1:] for value in frame.values() if value[:1] == _CHANGE]


def parts(items: Iterable[bytes]) -> Iterable[bytes]:
    """Small records joined into larger ones, each of them still small enough for one message."""
    gathered: list[bytes] = []
    size = 0
    for item in items:
        if size + len(item) > _PART_BYTES and gathered:
            yield b"".join(gathered)
            gathered, size = [], 0
        gathered.append(item)
        size += len(item)
    if gathered:
        yield b"".join(gathered)


@lru_cache(maxsize=8)
def _settings(defaults: StorageSettings) -> StorageSettings:
    """State is small and read at every opening: never compressed, never dropped but by a snapshot."""
    return replace(
        StorageSettings(),
        fsync_interval_ms=defaults.fsync_interval_ms,
        linger_ms=defaults.linger_ms,
        segment_bytes=4 * 1024 * 1024,
    )
