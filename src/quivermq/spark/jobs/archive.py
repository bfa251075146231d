"""Tiered storage: messages from the logs to Parquet files, each once. Tasks write the files themselves."""

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quivermq.archive import (
    Archive,
    ArchivedFile,
    ArchivedLane,
    Manifest,
)
from quivermq.archive.archiving import (
    ArchivePace,
    ArchiveRange,
    changing,
    commit,
    manifest_for,
    mergers,
    pieces,
    todo,
)
from quivermq.archive.manifest import ArchiveRun, store_manifest
from quivermq.archive.reading import find_difference
from quivermq.archive.writing import write_merged, write_piece
from quivermq.clock import SystemClock
from quivermq.errors import (
    Conflict,
    Corruption,
    Denied,
    InvalidRequest,
    NotFound,
    OffsetOutOfRange,
    StorageFailed,
    TopicNotFound,
)
from quivermq.frame import Frame
from quivermq.model.lanes import Lane
from quivermq.model.operations import LaneBounds
from quivermq.reading.reader import AnyPath, MessageReader, ProgressCallback, QueueReader, local_path
from quivermq.spark.execution import cores_of, results_of, translated, watched
from quivermq.spark.jobs.state import job_reader
from quivermq.spark.session import session
from quivermq.spark.subscription import chosen_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

AGE = 600.0
FILE_BYTES = 128 * 1024 * 1024

_NOT_FREED = (
    "everything is archived, but only whoever has the directory open can free it;"
    " if that is a broker, archive with server= (--server)"
)
# So many files for each core are committed together: what is killed loses no more than that.
_FILES_A_CORE = 4

Work = Sequence["Copying | Merging"]


@dataclass(frozen=True, slots=True)
class ArchivedTopicSummary:
    """What became of one topic."""

    topic: str
    messages: int = 0
    """How many were archived; of a dry run, how many offsets would be."""
    bytes: int = 0
    """Of the new files; of a dry run, about what is in the logs."""
    files: int = 0
    merged: int = 0
    """How many small files became larger ones."""
    lost: int = 0
    """Offsets that retention had taken before anybody archived them."""
    waiting: int = 0
    """Offsets that are too few and too young."""
    problem: str | None = None
    """Why not all was done that there is to do; the next run tries again."""
    is_damaged: bool = False
    """Whether the problem is one of the stored bytes."""


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """What a run of the archiver did."""

    where: str
    directory: str
    is_dry_run: bool
    topics: tuple[ArchivedTopicSummary, ...] = ()
    is_served: bool = False
    """Whether the queue knows of the archive, and reads on there."""
    freed_segments: int = 0
    freed_bytes: int = 0
    seconds: float = 0.0

    @property
    def messages(self) -> int:
        return sum(topic.messages for topic in self.topics)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(topic.problem for topic in self.topics if topic.problem is not None)


def archive(
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    *,
    to: AnyPath | None = None,
    topics: Iterable[str] | str | None = None,
    age: float = AGE,
    file_bytes: int = FILE_BYTES,
    free: bool = False,
    rewrite: bool = True,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
    spark: "SparkSession | None" = None,
) -> ArchiveSummary:
    """Write what is not archived yet to Parquet below `to`, by default `archive` in the data directory.

    Messages of a lane wait until there are `file_bytes` of them, or the oldest is `age` seconds old. With
    `rewrite` small files of a day become larger ones; with `free` the queue then removes what is archived
    and what all groups have finished with. Killed at any time and run again, every message is there once.
    A topic that cannot be archived is a `problem` of the summary, and the others are.

    Raises Conflict while another archiver is at work or the broker cannot free anything; InvalidRequest;
    TopicNotFound for a name that is no topic.
    """
    started = time.monotonic()
    if not 0 <= age < 10 * 365 * 24 * 3600:
        raise InvalidRequest(f"age is a number of seconds, 0 or more, not {age!r}")
    if file_bytes < 1:
        raise InvalidRequest(f"file_bytes is at least 1, not {file_bytes!r}")
    pace = ArchivePace(SystemClock().now_us(), round(age * 1_000_000), file_bytes)
    with closing(job_reader(path, server, key)) as reader:
        target = ArchiveTarget(reader, to)
        names = chosen_topics(topics, reader.origins())
        store = Archive(target.directory)
        summary = ArchiveSummary(str(reader), str(target.directory), dry_run)
        if dry_run:
            done = [_unless_damaged(name, partial(_looked, reader, store, name, pace)) for name in names]
            return replace(summary, topics=tuple(done), seconds=time.monotonic() - started)
        with changing(store, f"{pace.now_us}-{uuid.uuid4().hex[:8]}") as job:
            is_served = target.announce()
            if free and not is_served:
                raise Conflict(
                    f"{reader} cannot read {target.directory}, or the key may not tell it to:"
                    " nothing can be freed"
                )
            workers = _Workers(spark, progress)
            works = [_Topic(reader, store, job, name, pace, workers) for name in names]
            done = [_unless_damaged(each.name, partial(each.run, rewrite=rewrite)) for each in works]
    summary = replace(summary, topics=tuple(done), is_served=is_served)
    if free:
        # Only whoever has the queue open may remove what is archived and finished with.
        with reader.open_queue(if_locked=_NOT_FREED) as queue:
            freed = queue.compact(archived=True)
        summary = replace(summary, freed_segments=freed.segments, freed_bytes=freed.bytes)
    return replace(summary, seconds=time.monotonic() - started)


def _unless_damaged(name: str, work: Callable[[], ArchivedTopicSummary]) -> ArchivedTopicSummary:
    """What became of a topic. Damage in one is no reason to leave the others alone."""
    try:
        return work()
    except Corruption as error:
        return ArchivedTopicSummary(name, problem=f"{name}: {error}", is_damaged=True)


class ArchiveTarget:
    """The archive of a queue: the one it has, or the one that it gets."""

    def __init__(self, reader: QueueReader, to: AnyPath | None) -> None:
        self._reader = reader
        try:
            self._known = reader.archive_directory()
        except Denied:
            self._known = None  # The key may read messages, and that is all this needs.
        self.directory = self._chosen(to)

    def _chosen(self, to: AnyPath | None) -> Path:
        chosen = None if to is None else local_path(os.fspath(to))
        if chosen is not None:
            if self._known is not None and self._known.absolute() != chosen:
                # Two archives of one queue would each have a part, and nobody would look into both.
                raise Conflict(
                    f"the archive of this queue is {self._known}, not {chosen}: go on with that one,"
                    " or let the queue forget it with use_archive(None)"
                )
            return chosen
        return self._reader.new_archive_directory() if self._known is None else self._known

    def announce(self) -> bool:
        """Tell the queue where its archive is. False when it cannot read it, or may not be told."""
        if self._known is not None:
            return True
        try:
            self._reader.use_archive(self.directory)
        except (NotFound, Denied) as error:
            logger.warning("%s does not serve what is archived: %s", self._reader, error)
            return False
        return True


def may_be_archived(reader: QueueReader, topic: str) -> bool:
    """Whether an archive has something of a topic; True as well when nobody can tell."""
    try:
        directory = reader.archive_directory()
        if directory is None:
            return False
        archive = Archive(directory)
        archive.check()
        return archive.topic(topic, reader.created_us(topic)) is not None
    except (NotFound, Denied, StorageFailed):
        return True


class _Workers:
    """The executors, asked for when there is work."""

    def __init__(self, spark: "SparkSession | None", progress: ProgressCallback | None) -> None:
        self._spark = spark
        self._progress = progress

    @property
    def files_at_once(self) -> int:
        return _FILES_A_CORE * cores_of(self._session())

    def run(self, work: Work, description: str) -> list[list[ArchivedFile]]:
        """What each of them staged, in the same order."""
        spark = self._session()
        with watched(spark, self._progress, description), translated():
            return results_of(spark, work, run)

    def _session(self) -> "SparkSession":
        self._spark = self._spark or session()
        return self._spark


@dataclass(slots=True)
class _Topic:
    """The archiving of one topic, while the archive is held."""

    reader: QueueReader
    store: Archive
    job: ArchiveRun
    name: str
    pace: ArchivePace
    workers: _Workers

    def run(self, *, rewrite: bool) -> ArchivedTopicSummary:
        summary = ArchivedTopicSummary(self.name)
        try:
            created_us = self.reader.created_us(self.name)
            manifest = manifest_for(self.store, self.name, created_us)
            if not manifest.generation:
                # From now on, retention leaves what is not archived.
                store_manifest(self.store.disk, self.store.directory, manifest)
            plan = list(_planned(self.reader, manifest, self.pace))
        except TopicNotFound:
            return summary  # Somebody has just deleted it.
        except Conflict as error:
            return replace(summary, problem=str(error))
        summary = replace(summary, lost=sum(p.lost for p in plan), waiting=sum(p.waiting for p in plan))
        before = manifest
        manifest = self._copied(manifest, [piece for planned in plan for piece in planned.pieces])
        new = [
            file
            for place, lane in manifest.lanes.items()
            for file in lane.files_from(before.lane(place).end)
        ]
        summary = replace(
            summary,
            messages=sum(file.rows for file in new),
            bytes=sum(file.bytes for file in new),
            files=len(new),
        )
        return replace(summary, merged=self._merged(manifest)) if rewrite else summary

    def _copied(self, manifest: Manifest, planned: Sequence[ArchiveRange]) -> Manifest:
        """Archive ranges, some at a time, each of these for good before the next begins."""
        rest, at_once = iter(planned), self.workers.files_at_once if planned else 1
        while wave := list(islice(rest, at_once)):
            work = [Copying(self.job, self.reader, manifest.created_us, piece) for piece in wave]
            staged = self.workers.run(work, f"archiving {self.name}")
            by_lane = groupby(zip(wave, staged, strict=True), key=lambda each: each[0].lane)
            for lane, results in by_lane:
                manifest = manifest.with_files(lane, [file for _, files in results for file in files])
            manifest = commit(self.store.disk, self.store.directory, manifest)
        return manifest

    def _merged(self, manifest: Manifest) -> int:
        """Make larger files of many small ones, and return how many there were."""
        work = [
            Merging(self.job, manifest.created_us, lane, files)
            for lane, archived in manifest.lanes.items()
            for files in mergers(archived, self.pace.file_bytes)
        ]
        if not work:
            return 0
        for each, [merged] in zip(work, self.workers.run(work, f"merging {self.name}"), strict=True):
            manifest = manifest.with_merged(each.lane, merged)
        commit(self.store.disk, self.store.directory, manifest)
        return sum(len(each.files) for each in work)


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is to be done with one lane."""

    pieces: list[ArchiveRange]
    lost: int
    waiting: int
    size_bytes: int


def _planned(reader: QueueReader, manifest: Manifest, pace: ArchivePace) -> Iterator[_Planned]:
    """The work on each lane. Raises Conflict."""
    # Only what survives power loss: otherwise the log may go on with other messages at these offsets.
    archived_ends = {lane: archived.end for lane, archived in manifest.lanes.items()}
    synced_ends = reader.synced_ends(manifest.topic, archived_ends)
    view = reader.look(manifest.topic)
    if view.created_us != manifest.created_us:
        raise Conflict(f"the topic {manifest.topic} was deleted and made again just now: run it again")
    for lane, bounds in view.lanes.items():
        archived = manifest.lane(lane)
        _check_belongs(reader, lane, archived, bounds)
        held = _held(bounds, synced_ends.get(lane, 0))
        start, end = todo(archived, held)
        if start == end:
            continue
        found = pieces(lane, archived, held, _oldest_us(reader, lane, start), pace)
        lost = start - archived.end if archived.files else 0
        size = held.bytes * (end - start) // (held.end - held.start)
        yield _Planned(found, lost if found else 0, 0 if found else end - start, size if found else 0)


def _held(bounds: LaneBounds, synced_end: int) -> LaneBounds:
    """As much of a lane as survives power loss."""
    end = max(bounds.start, min(bounds.end, synced_end))
    size = bounds.bytes * (end - bounds.start) // max(1, bounds.end - bounds.start)
    return bounds._replace(end=end, bytes=size)


def _check_belongs(reader: MessageReader, lane: Lane, archived: ArchivedLane, bounds: LaneBounds) -> None:
    """Raise Conflict where the log is not the one that was archived, or has lost its end since."""

    def frames(offset: int) -> Iterator[Frame]:
        return reader.frames(lane, offset, offset + 1)

    difference = find_difference(archived, bounds.start, bounds.end, frames)
    if difference is not None:
        raise Conflict(
            f"{lane}: {difference}; this is not the log that was archived, or it has lost its end:"
            f" archive into another directory, or move topic={lane.topic} and its manifest out of the way"
        )


def _oldest_us(reader: MessageReader, lane: Lane, start: int) -> int:
    """When the first frame came in that is not archived; long ago, where it is gone already."""
    try:
        frame = next(iter(reader.frames(lane, start, start + 1)), None)
    except OffsetOutOfRange:
        return 0
    return 0 if frame is None else frame.header.append_time


def _looked(reader: QueueReader, store: Archive, name: str, pace: ArchivePace) -> ArchivedTopicSummary:
    """What would be done with a topic."""
    summary = ArchivedTopicSummary(name)
    try:
        manifest = manifest_for(store, name, reader.created_us(name))
        plan = list(_planned(reader, manifest, pace))
    except Conflict as error:
        return replace(summary, problem=str(error))
    found = [piece for planned in plan for piece in planned.pieces]
    return replace(
        summary,
        messages=sum(piece.end - piece.start for piece in found),
        bytes=sum(planned.size_bytes for planned in plan),
        files=len(found),
        merged=sum(
            len(files) for lane in manifest.lanes.values() for files in mergers(lane, pace.file_bytes)
        ),
        lost=sum(planned.lost for planned in plan),
        waiting=sum(planned.waiting for planned in plan),
    )


class Copying(NamedTuple):
    """A range of a lane that becomes files."""

    job: ArchiveRun
    reader: MessageReader
    created_us: int
    piece: ArchiveRange

    def run(self) -> list[ArchivedFile]:
        """Raises Conflict when the topic is another one by now, and what `MessageReader.frames` raises."""
        piece, lane = self.piece, self.piece.lane
        with closing(self.reader) as reader:
            if reader.created_us(lane.topic) != self.created_us:
                raise Conflict(f"the topic {lane.topic} was deleted and made again while it was archived")
            frames, disk = reader.frames(lane, piece.start, piece.end), Archive(self.job.archive).disk
            return write_piece(disk, self.job, piece, frames, reader.removed(lane))


class Merging(NamedTuple):
    """Small files that become one."""

    job: ArchiveRun
    created_us: int
    lane: Lane
    files: list[ArchivedFile]

    def run(self) -> list[ArchivedFile]:
        archive = Archive(self.job.archive)
        topic = archive.topic(self.lane.topic, self.created_us)
        assert topic is not None, "whoever holds the archive has seen its manifest"
        return [write_merged(archive.disk, self.job, topic, self.lane, self.files)]


def run(work: Copying | Merging) -> Iterator[list[ArchivedFile]]:
    """In an executor: do it."""
    yield work.run()
