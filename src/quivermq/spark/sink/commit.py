"""From staged files to the topics of a queue that the driver opens, exactly once, across its crashes.

The manifest is the commit point: from when it has its name, the batch consists of exactly the files that it
lists, also when the batch is executed again and stages others. Applying it may be repeated, because each
frame has a producer and a sequence. A topic remembers these of so many frames only, so a large batch is
applied in parts, and how far it came is noted after each.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Disk, read_file, remove_tree, replace_file
from quivermq.errors import Conflict, DirectoryLocked, StorageFailed, Unavailable
from quivermq.reading.reader import QueueReader
from quivermq.sealed import open_seal, sealed
from quivermq.settings import Durability
from quivermq.spark.sink.options import Throttle
from quivermq.spark.sink.staging import (
    STAGING,
    StagedFile,
    StagedFrame,
    directory_of,
    packed_manifest,
    unpacked_manifest,
)

if TYPE_CHECKING:
    from quivermq.queue.connection import Connection

logger = logging.getLogger(__name__)

# Longer than any batch takes from its first file to its commit.
_KEPT_S = 7 * 24 * 3600
_STAGED = re.compile(r"[0-9]+-([0-9]+)-[0-9a-f]+\.frames", re.ASCII)


def remove_abandoned(disk: Disk, path: Path, now_us: int) -> None:
    """Take away old files without a manifest. Whoever calls has the lock of the queue.

    No batch misses them: one that is executed again stages files of its own.
    """
    oldest_s = now_us // 1_000_000 - _KEPT_S
    for write in disk.names(path / STAGING):
        directory = path / STAGING / write
        names = disk.names(directory)
        batches = [name for name in names if name.isdigit() and f"{name}.json" not in names]
        old = [batch for batch in batches if _is_old(disk, directory / batch, oldest_s)]
        for batch in old:
            logger.info("%s was staged by a write that never came to its end", directory / batch)
            remove_tree(disk, directory / batch)
        if old and not disk.names(directory):
            remove_tree(disk, directory)


def _is_old(disk: Disk, directory: Path, oldest_s: int) -> bool:
    """Whether all files in it were begun long ago. An empty one may be of a task that begins just now."""
    found = [_STAGED.fullmatch(name) for name in disk.names(directory)]
    return bool(found) and all(match is not None and int(match[1]) < oldest_s for match in found)


LOCK = "spark.lock"
# As long as a large batch takes: the lock of whoever dies is free at once.
_TURN_WAIT_S = 1800.0
_PAUSE_S = 0.02

T = TypeVar("T")


def patiently(take: Callable[[], T], wait_s: float, clock: Clock | None = None) -> T:
    """What `take` returns as soon as nobody else has the lock. Raises DirectoryLocked after `wait_s`."""
    clock = clock or SystemClock()
    deadline = clock.monotonic() + wait_s
    while True:
        try:
            return take()
        except DirectoryLocked:
            if clock.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)


@contextmanager
def turn(disk: Disk, path: Path, *, wait_s: float = _TURN_WAIT_S) -> Iterator[None]:
    """Commit to a queue while no other write from Spark does. Raises Unavailable.

    The lock of the queue itself cannot tell a sink of the same pipeline, which is done in a moment, from a
    program that keeps it open.
    """
    disk.make_directory(path)
    try:
        lock = patiently(lambda: disk.lock(path / LOCK), wait_s)
    except DirectoryLocked as error:
        raise Unavailable(
            f"another write from Spark, in process {error.pid}, has been committing to {path} for"
            f" {wait_s:.0f} s: look what it waits for, and start this one again"
        ) from error
    try:
        yield
    finally:
        lock.release()


_APPLIED = "applied"
_MANIFEST = ".json"
_PROGRESS = ".applied"
# The directory of a batch, its manifest, how far that is applied, and one of these that was not finished.
_OF_A_BATCH = re.compile(r"([0-9]+)((\.json|\.applied)(\.new)?)?", re.ASCII)
_MANIFEST_BYTES_MAX = 1024 * 1024 * 1024
_NUMBER_BYTES_MAX = 256
# Fewer than the producers that a topic remembers for ever, each of which may have a frame of its own here.
FRAMES_PER_NOTE = 4096
# A command that puts one message is done by then; whoever keeps the queue open is not.
_QUEUE_WAIT_S = 3.0
# What is abandoned is looked for now and then: it costs a look at every write there has been.
_BATCHES_PER_LOOK = 100

Opener = Callable[[], "AbstractContextManager[Connection]"]


def open_queue(reader: QueueReader, *, wait_s: float = _QUEUE_WAIT_S) -> "Connection":
    """The queue, as any embedded program opens it. Raises Unavailable while another one has it."""
    try:
        return patiently(reader.open_queue, wait_s)
    except DirectoryLocked as error:
        holder = "another process" if error.pid is None else f"process {error.pid}"
        raise Unavailable(
            f"{reader} is open in {holder}, and only one may write to it: close it there, or write with the"
            " option `server` to the broker that serves it"
        ) from error


def commit_batch(
    root: Path,
    write: str,
    batch: int,
    files: list[StagedFile],
    *,
    disk: Disk,
    open_queue: Opener,
    durability: Durability | None = None,
    pace: Throttle | None = None,
    is_repeatable: bool = True,
    clock: Clock | None = None,
) -> None:
    """Bring a batch into its topics, unless that was done before.

    A write that nobody can repeat, because it has an id of its own each time, leaves nothing behind. Other
    writes from Spark are waited for. Raises Unavailable while somebody else has the directory open.
    """
    directory = directory_of(root, write)
    applying = _Applying(disk, directory, batch, durability, pace or Throttle(None))
    with turn(disk, root), open_queue() as queue:
        if not is_repeatable:
            applying.apply(queue, files)
            remove_tree(disk, directory)
        else:
            if batch > _last_applied(disk, directory):
                applying.apply_manifest(queue, files)
                replace_file(disk, directory / _APPLIED, _written_number(batch))
            _clean(disk, directory)
        if batch % _BATCHES_PER_LOOK == 0:
            remove_abandoned(disk, root, (clock or SystemClock()).now_us())


def discard_batch(root: Path, write: str, batch: int, *, disk: Disk, is_repeatable: bool = True) -> None:
    """Take away what was staged for a batch that failed. What has a manifest is committed, and stays."""
    directory = directory_of(root, write)
    if not is_repeatable:
        remove_tree(disk, directory)
    elif not disk.exists(directory / f"{batch}{_MANIFEST}"):
        remove_tree(disk, directory / str(batch))


def _last_applied(disk: Disk, directory: Path) -> int:
    return _read_number(disk, directory / _APPLIED, -1)


def _read_number(disk: Disk, path: Path, otherwise: int) -> int:
    try:
        document = json.loads(read_file(disk, path, bytes_max=_NUMBER_BYTES_MAX))
        open_seal(document, ("number",))
        return int(document["number"])
    except FileNotFoundError:
        return otherwise
    except (ValueError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from error


def _written_number(number: int) -> bytes:
    return sealed({"number": number}, indent=None)


def _damaged(path: Path, error: Exception) -> StorageFailed:
    return StorageFailed(
        f"{path}, which says what a write from Spark has done, cannot be understood: {error}", path=path
    )


class _Applying:
    """Brings the frames of one batch into their topics."""

    def __init__(
        self, disk: Disk, directory: Path, batch: int, durability: Durability | None, pace: Throttle
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._batch = batch
        self._durability = durability
        self._pace = pace

    def apply_manifest(self, queue: "Connection", files: list[StagedFile]) -> None:
        """Apply the manifest of the batch, which is made of these files unless there is one."""
        manifest = self._directory / f"{self._batch}{_MANIFEST}"
        if not self._disk.exists(manifest):
            self._check_there(files)
            self._disk.make_directory(self._directory)
            replace_file(self._disk, manifest, packed_manifest(files))
        try:
            committed = unpacked_manifest(read_file(self._disk, manifest, bytes_max=_MANIFEST_BYTES_MAX))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(manifest, error) from error
        self.apply(queue, committed, self._directory / f"{self._batch}{_PROGRESS}")

    def apply(self, queue: "Connection", files: list[StagedFile], progress: Path | None = None) -> None:
        """Put all frames, in parts when how far it came is to be noted, from the last note on."""
        frames = [(file.name, frame) for file in files for frame in file.frames]
        done = 0 if progress is None else _read_number(self._disk, progress, 0)
        while progress is not None and len(frames) - done > FRAMES_PER_NOTE:
            # Before the note: after a power loss nobody looks at them again.
            self._put(queue, frames[done : done + FRAMES_PER_NOTE], "fsync")
            done += FRAMES_PER_NOTE
            replace_file(self._disk, progress, _written_number(done))
        self._put(queue, frames[done:], self._durability)

    def _put(
        self,
        queue: "Connection",
        frames: list[tuple[str, StagedFrame]],
        durability: Durability | None,
    ) -> None:
        last = {frame.lane: frame for _, frame in frames}
        for name, of_file in groupby(frames, key=lambda each: each[0]):
            file = self._disk.open(self._directory / str(self._batch) / name)
            try:
                for _, frame in of_file:
                    self._pace.wait(frame.messages)
                    # What is promised is promised at the end; a sync of the last covers those before.
                    is_last = last[frame.lane] is frame
                    queue.queue(frame.topic).put_frame(
                        file.read(frame.position, frame.length),
                        partition=frame.partition,
                        priority=frame.priority,
                        durability=durability if is_last else "os",
                    )
            finally:
                file.close()

    def _check_there(self, files: list[StagedFile]) -> None:
        """A manifest of files that somebody took away could never be applied."""
        there = set(self._disk.names(self._directory / str(self._batch)))
        missing = [file.name for file in files if file.frames and file.name not in there]
        if missing:
            raise Conflict(
                f"{missing[0]} was staged in {self._directory / str(self._batch)} and is gone by now:"
                " write again"
            )


def _clean(disk: Disk, directory: Path) -> None:
    """Take away what is applied, and what attempts left that came to nothing."""
    last = _last_applied(disk, directory)
    found = {name: match for name in disk.names(directory) if (match := _OF_A_BATCH.fullmatch(name))}
    done = [name for name, match in found.items() if int(match[1]) <= last]
    # First the manifests: while there is one, its files are there as well.
    for name in (name for name in done if not name.isdigit()):
        disk.remove(directory / name)
    disk.sync_directory(directory)
    for name in (name for name in done if name.isdigit()):
        remove_tree(disk, directory / name)
