"""What a run of the archiver does: which ranges become files, which files become one, and how that counts.

An archive is changed by one at a time, and so that a crash at any step leaves the old or the new. Steps:
files are staged and synced; the manifest that counts them is put in place, which is the commit; files that
others stand in for are removed; the staged ones get their names; the manifest says that this is done; what
is left in the staging directory is swept away. Whoever comes after a crash finishes what was committed and
sweeps away what was not. Files are removed before others get their names, so that somebody who reads plain
Parquet never counts a message twice.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from quivermq.archive.manifest import (
    OWN,
    ArchivedFile,
    ArchivedLane,
    ArchiveRun,
    Manifest,
    lock_path,
    manifest_path,
    staging_path,
    store_manifest,
    topic_path,
)
from quivermq.archive.reading import Archive
from quivermq.disk import Disk, remove_tree
from quivermq.errors import Conflict, DirectoryLocked, StorageFailed
from quivermq.model.lanes import Lane
from quivermq.model.operations import LaneBounds

# So many small files of a day may stay as they are.
FEW = 8
# Of the size that files should have, in raw bytes, a small one has at most this part, compressed.
_SMALL_PART = 8
_LARGE_PART = 2


@dataclass(frozen=True, slots=True)
class ArchiveRange:
    """A range of a lane that becomes a file, or one for each day that it touches."""

    lane: Lane
    start: int
    end: int
    now_us: int
    """A range of which no frame is left belongs to this day."""


@dataclass(frozen=True, slots=True)
class ArchivePace:
    """When a lane's messages are archived."""

    now_us: int
    age_us: int
    """Once the oldest that is not archived is so old, however few there are."""
    file_bytes: int
    """Once there are so many bytes, however young they are."""


def todo(archived: ArchivedLane, held: LaneBounds) -> tuple[int, int]:
    """The range of a lane that is not archived."""
    start = max(archived.end, held.start)
    return start, max(start, held.end)


def pieces(
    lane: Lane, archived: ArchivedLane, held: LaneBounds, oldest_us: int, pace: ArchivePace
) -> list[ArchiveRange]:
    """The ranges of one lane that become files now, in order and without a hole.

    `held` ends where the log survives power loss. `oldest_us` is when the first frame that is not archived
    came in.
    """
    start, end = todo(archived, held)
    size = held.bytes * (end - start) // max(1, held.end - held.start)
    if start == end or (size < pace.file_bytes and oldest_us > pace.now_us - pace.age_us):
        return []
    parts = max(1, round(size / pace.file_bytes))
    step = -(-(end - start) // parts)
    return [
        ArchiveRange(lane, first, min(first + step, end), pace.now_us) for first in range(start, end, step)
    ]


def mergers(lane: ArchivedLane, file_bytes: int, *, few: int = FEW) -> list[list[ArchivedFile]]:
    """The small files that become one, together: neighbours of one day, where there are more than a few."""
    found = []
    for run in _small_runs(lane.files, file_bytes // _SMALL_PART):
        if len(run) > few:
            found += [group for group in _groups(run, file_bytes // _LARGE_PART) if len(group) > 1]
    return found


def _small_runs(files: Sequence[ArchivedFile], small_bytes: int) -> Iterator[list[ArchivedFile]]:
    run: list[ArchivedFile] = []
    for file in files:
        is_small = file.bytes < small_bytes
        if run and not (is_small and (run[-1].end, run[-1].day) == (file.start, file.day)):
            yield run
            run = []
        if is_small:
            run.append(file)
    yield run


def _groups(run: Sequence[ArchivedFile], large_bytes: int) -> Iterator[list[ArchivedFile]]:
    group: list[ArchivedFile] = []
    for file in run:
        if group and sum(each.bytes for each in group) + file.bytes > large_bytes:
            yield group
            group = []
        group.append(file)
    yield group


logger = logging.getLogger(__name__)


@contextmanager
def changing(archive: Archive, name: str) -> Iterator[ArchiveRun]:
    """Hold the archive, with everything finished that an earlier run has committed.

    Raises Conflict while another job has it. The lock of a process that died is free.
    """
    disk, directory = archive.disk, archive.directory
    disk.make_directory(directory / OWN)
    try:
        lock = disk.lock(lock_path(directory))
    except DirectoryLocked as error:
        holder = "another process" if error.pid is None else f"process {error.pid}"
        raise Conflict(f"{directory} is being changed by {holder}: wait for its end") from None
    try:
        for topic in archive.topics():
            manifest = archive.manifest(topic)
            if manifest is not None:
                settle(disk, directory, manifest)
        sweep(disk, directory)
        job = ArchiveRun(directory, name)
        disk.make_directory(directory / job.staging)
        yield job
        sweep(disk, directory)
    finally:
        lock.release()


def manifest_for(archive: Archive, topic: str, created_us: int) -> Manifest:
    """The manifest that a change begins with, an empty one for a topic that is new to the archive.

    Raises Conflict when the archive is that of an earlier topic of the same name.
    """
    manifest = archive.manifest(topic)
    if manifest is None:
        return Manifest(topic, created_us)
    if manifest.created_us != created_us:
        raise Conflict(
            f"{manifest_path(archive.directory, topic)} is about another topic of the name {topic}, which"
            f" was made at {manifest.created_us} µs, and this one at {created_us} µs: archive into another"
            f" directory, or move {topic_path(archive.directory, topic)} and the manifest out of the way"
        )
    return manifest


def commit(disk: Disk, archive: Path, manifest: Manifest) -> Manifest:
    """Let a manifest count, and bring its files to their places. Called while the archive is held."""
    store_manifest(disk, archive, manifest)
    return settle(disk, archive, manifest)


def settle(disk: Disk, archive: Path, manifest: Manifest) -> Manifest:
    """Finish what a committed manifest has begun. Repeating it, at whatever step it was left, is right."""
    # A manifest that was seen may not be durable yet, and what it no longer names must not go before.
    disk.sync_directory(archive / OWN)
    if manifest.is_settled:
        return manifest
    changed = set()
    for name in manifest.dropped:
        if disk.exists(archive / name):
            disk.remove(archive / name)
            changed.add((archive / name).parent)
    for directory in sorted(changed):
        disk.sync_directory(directory)
    changed = set()
    for file in manifest.staged:
        assert file.staged is not None
        target = archive / file.name
        if disk.exists(archive / file.staged):
            disk.make_directory(target.parent)
            disk.rename(archive / file.staged, target)
        elif not disk.exists(target):
            raise StorageFailed(
                f"{target} is missing: bring it back from a copy of the archive", path=target
            )
        changed.add(target.parent)
    for directory in sorted(changed):
        disk.sync_directory(directory)
    settled = replace(manifest.settled(), generation=manifest.generation + 1)
    store_manifest(disk, archive, settled)
    return settled


def sweep(disk: Disk, archive: Path) -> None:
    """Remove what nobody has committed. Called while the archive is held and everything is settled."""
    staging = staging_path(archive)
    for name in disk.names(staging):
        try:
            remove_tree(disk, staging / name)
        except StorageFailed as error:
            # A task of a run that was killed may still write there, where nobody looks.
            logger.warning("%s is left for the next run: %s", staging / name, error)
