"""Changing an archive: one at a time, and so that a crash at any step leaves the old or the new.

The steps of a change: files are staged and synced; the manifest that counts them is put in place, which is
the commit; files that others stand in for are removed; the staged ones get their names; the manifest says
that this is done; what is left in the staging directory is swept away. Whoever comes after a crash finishes
what was committed and sweeps away what was not. Files are removed before others get their names, so that
somebody who reads plain Parquet never counts a message twice.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from quivermq.archive.manifest import Manifest, store_manifest
from quivermq.archive.places import OWN, lock_path, manifest_path, staging_path, topic_path
from quivermq.archive.reading import Archive
from quivermq.archive.writing import Job
from quivermq.disk import Disk, remove_tree
from quivermq.errors import Conflict, DirectoryLocked, StorageFailed

logger = logging.getLogger(__name__)


@contextmanager
def changing(archive: Archive, name: str) -> Iterator[Job]:
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
        job = Job(directory, name)
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
