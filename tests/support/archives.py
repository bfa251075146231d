"""Archiving without Spark: what the job does, in one process and on any disk."""

from collections.abc import Iterator
from pathlib import Path

from quivermq.archive import Archive, ArchivedFile, Manifest
from quivermq.archive.archiving import ArchiveRange, changing, commit, manifest_for, mergers
from quivermq.archive.writing import write_merged, write_piece
from quivermq.disk import Disk, SystemDisk
from quivermq.frame import Frame
from quivermq.log import LogFollower, ReadableLog
from quivermq.model.lanes import PRIORITIES, Lane, priority_of
from quivermq.settings import StorageSettings
from quivermq.topic.stored import load_topic

ARCHIVE = Path("/archive")
TOPIC = "orders"
CREATED_US = 1_700_000_000_000_000
LANE = Lane(TOPIC, 0, "normal")
DAY_S = 24 * 3600
COLUMNS = ["key", "value", "headers", "offset", "timestamp", "expires_at", "dedup_id"]


def frames_of(log: ReadableLog, start: int, end: int) -> Iterator[Frame]:
    for frame in log.frames(start):
        if frame.header.base_offset >= end:
            return
        yield frame


def archive_log(
    disk: Disk,
    log: ReadableLog,
    end: int | None = None,
    *,
    directory: Path = ARCHIVE,
    lane: Lane = LANE,
    created_us: int = CREATED_US,
    piece_messages: int = 1_000_000,
) -> Manifest:
    """Archive what is not archived yet, up to `end`, in pieces of so many messages."""
    archive = Archive(directory, disk)
    with changing(archive, "job") as job:
        manifest = manifest_for(archive, lane.topic, created_us)
        start, end = max(log.start, manifest.lane(lane).end), log.end if end is None else end
        files: list[ArchivedFile] = []
        for first in range(start, end, piece_messages):
            behind = min(first + piece_messages, end)
            piece = ArchiveRange(lane, first, behind, CREATED_US)
            files += write_piece(disk, job, piece, frames_of(log, first, behind))
        return commit(disk, directory, manifest.with_files(lane, files)) if files else manifest


def merge(disk: Disk, *, directory: Path = ARCHIVE, lane: Lane = LANE, few: int = 1) -> Manifest:
    """Make one of all the small files of each day."""
    archive = Archive(directory, disk)
    with changing(archive, "merge") as job:
        manifest = archive.manifest(lane.topic)
        assert manifest is not None
        found = archive.topic(lane.topic, manifest.created_us)
        assert found is not None
        for files in mergers(manifest.lane(lane), 2**40, few=few):
            merged = write_merged(disk, job, found, lane, files)
            manifest = manifest.with_merged(lane, merged)
        return commit(disk, directory, manifest)


def archived_values(
    disk: Disk, start: int = 0, *, directory: Path = ARCHIVE, lane: Lane = LANE
) -> list[bytes]:
    """The values that the manifest counts."""
    manifest = Archive(directory, disk).manifest(TOPIC)
    if manifest is None or not manifest.lane(lane).files:
        return []
    found = Archive(directory, disk).topic(TOPIC, manifest.created_us)
    assert found is not None
    records = found.records(lane, max(start, found.lane(lane).start), found.lane(lane).end)
    return [record.value for record in records]


def archive_queue(
    data: Path, directory: Path, *topics: str, end: int | None = None, disk: Disk | None = None
) -> None:
    """Archive all lanes of topics, beside whoever has the queue open, and tell nobody."""
    disk = disk or SystemDisk()
    for topic in topics:
        stored = load_topic(disk, data / "topics" / topic)
        assert stored is not None
        for partition in range(stored.settings.partitions):
            for priority in disk.names(data / "topics" / topic / f"p{partition}"):
                if priority in PRIORITIES:
                    path = data / "topics" / topic / f"p{partition}" / priority
                    log = LogFollower(path, StorageSettings(), disk=disk)
                    archive_log(
                        *(disk, log, end),
                        directory=directory,
                        lane=Lane(topic, partition, priority_of(priority)),
                        created_us=stored.created_us,
                    )
