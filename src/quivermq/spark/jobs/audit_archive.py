"""An archive beside its manifest: every file that should be there is, and holds what the manifest says."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quivermq.archive import Archive, LanePlace, load_pointer
from quivermq.disk import SystemDisk
from quivermq.errors import QuiverError, StorageFailed
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.jobs.audit_findings import AuditFinding
from quivermq.spark.place import Lane

# With the values, so that every part of a file whose sum would not be right is read.
_COLUMNS = ("offset", "key", "value", "headers", "timestamp")


class ArchiveTask(NamedTuple):
    """One file of an archive: its messages, of offsets [start, end)."""

    archive: str
    lane: Lane
    created_us: int
    name: str
    start: int
    end: int
    rows: int
    size_bytes: int


class Archived(NamedTuple):
    """What there is to look at in an archive, and what can be told at once."""

    tasks: list[ArchiveTask]
    findings: list[AuditFinding]


def archived(place: DirectoryPlace, topics: Iterable[str]) -> Archived:
    """The files of the archive of a directory; none when nothing was archived."""
    tasks, findings = list[ArchiveTask](), list[AuditFinding]()
    try:
        directory = load_pointer(SystemDisk(), place.path)
    except StorageFailed as error:
        return Archived([], [AuditFinding("archive", str(error.path), (0, None), str(error))])
    if directory is None:
        return Archived([], [])
    for topic in topics:
        try:
            created_us = place.created_us(topic)
            found = Archive(directory).topic(topic, created_us)
        except QuiverError as error:
            findings.append(AuditFinding("archive", str(directory), (0, None), str(error)))
            continue
        for (partition, priority), lane in found.manifest.lanes.items() if found is not None else ():
            own = Lane(topic, partition, priority)
            tasks += [
                ArchiveTask(str(directory), own, created_us, f.name, f.start, f.end, f.rows, f.bytes)
                for f in lane.files
            ]
            reason = "was lost before anybody archived it"
            findings += [AuditFinding("gap", f"the archive of {own}", gap, reason) for gap in lane.gaps]
    return Archived(tasks, findings)


def examine_archived(task: ArchiveTask) -> Iterator[AuditFinding]:
    """In an executor: read a file and compare it with what the manifest says."""
    path = Path(task.archive) / task.name
    rows, last = 0, task.start - 1
    reason = None
    try:
        topic = Archive(Path(task.archive)).topic(task.lane.topic, task.created_us)
        if topic is None:
            return  # Somebody has just made the topic anew.
        place = LanePlace(task.lane.partition, task.lane.priority)
        for batch in topic.batches(place, task.start, task.end, _COLUMNS):
            offsets = batch.column("offset").to_numpy()
            rows += len(offsets)
            if len(offsets) and (
                offsets[0] <= last or np.any(np.diff(offsets) <= 0) or offsets[-1] >= task.end
            ):
                reason = "has offsets that do not run upwards inside of its range"
            last = int(offsets[-1]) if len(offsets) else last
    except QuiverError as error:
        reason = str(error)
    if reason is None and rows != task.rows:
        reason = f"has {rows} messages, the manifest says {task.rows}"
    if reason is not None:
        yield AuditFinding("archive", str(path), (task.start, task.end), reason)
