"""`compact`: of the messages of a key only the latest stays, in topics with cleanup=compact."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quivermq.clock import SystemClock
from quivermq.disk import remove_tree
from quivermq.errors import Conflict, InvalidRequest, NotFound
from quivermq.frame.frame import RAW_BYTES_MAX
from quivermq.model.names import Pattern, is_pattern
from quivermq.queue.connection import Connection
from quivermq.reading.reader import (
    AnyPath,
    MessageReader,
    ProgressCallback,
    QueueReader,
    SegmentPart,
    no_progress,
)
from quivermq.settings import Settings
from quivermq.spark.execution import spread, translated, watched
from quivermq.spark.jobs.archive import may_be_archived
from quivermq.spark.jobs.compact_work import (
    KEYS,
    OUTCOME,
    PLACED,
    HandOver,
    Work,
    apply,
    drop,
    keys_of,
    rewriting,
    segments_of,
    send,
    stage,
    staged,
)
from quivermq.spark.jobs.state import job_reader, state_directory
from quivermq.spark.session import session
from quivermq.spark.subscription import topic_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class CompactedTopic:
    """What became of a topic. All figures are about its sealed segments, which alone are compacted."""

    topic: str
    segments: int = 0
    replaced: int = 0
    busy: int = 0
    """Segments that somebody else was changing all the time: the next run compacts them."""
    messages_before: int = 0
    messages_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(frozen=True, slots=True)
class CompactSummary:
    """What a compaction did, or would do."""

    where: str
    is_dry_run: bool
    topics: tuple[CompactedTopic, ...] = ()
    seconds: float = 0.0


def compact(
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    *,
    topics: Iterable[str] | str | None = None,
    tombstone_age_ms: int = DAY_MS,
    min_dirty_ratio: float = 0.0,
    spark: "SparkSession | None" = None,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> CompactSummary:
    """Let only the latest message of each key stay, in every partition and priority by itself.

    A message with a key and an empty value is a tombstone: it removes what its key had before, and goes
    itself when it is older than `tombstone_age_ms` and nothing of its key is before it any more, which
    takes a second run; in a topic that is archived it stays. Messages without a key stay, and so does the
    segment that is being written to; what lies there supersedes all the same. Segments of which a smaller
    share than `min_dirty_ratio` would go are left alone.

    The queue serves on meanwhile when it is reached through its broker. A directory must not be open
    elsewhere: raises DirectoryLocked. Raises InvalidRequest for a topic that was named and has
    cleanup=delete.
    """
    started = time.monotonic()
    _check(tombstone_age_ms, min_dirty_ratio)
    with closing(job_reader(path, server, key)) as reader, _replacing(reader, dry_run) as replacing:
        names = topics_to_compact(reader, topics)
        done = []
        for number, topic in enumerate(names):
            (progress or no_progress)("topics", number, len(names))
            job = _Job(reader, topic, replacing, tombstone_age_ms, min_dirty_ratio, progress)
            with translated():
                done.append(job.run(spark))
        (progress or no_progress)("topics", len(names), len(names))
    return CompactSummary(str(reader), dry_run, tuple(done), time.monotonic() - started)


def _check(tombstone_age_ms: int, min_dirty_ratio: float) -> None:
    if tombstone_age_ms < 0:
        raise InvalidRequest(f"tombstone_age_ms is 0 or more, not {tombstone_age_ms}")
    if not 0 <= min_dirty_ratio <= 1:
        raise InvalidRequest(f"min_dirty_ratio is a share, from 0 to 1, not {min_dirty_ratio}")


def _replacing(reader: QueueReader, dry_run: bool) -> "AbstractContextManager[_Replacing]":
    """Who replaces segments. Raises DirectoryLocked."""
    if dry_run:
        return nullcontext(_Replacing())
    return nullcontext(_Sending(reader)) if reader.staging_root() is None else _staging(reader)


@contextmanager
def _staging(reader: QueueReader) -> "Iterator[_Replacing]":
    # Before it is opened, which would make a directory that is not there.
    reader.origins()
    advice = "compact through the broker that has it open, with server= (--server), or stop it"
    with reader.open_queue(if_locked=advice) as queue:
        yield _Staging(reader, queue)


class _Replacing:
    """How new segments come to stand for old ones. This one replaces nothing: it is that of a dry run."""

    # What whoever takes the frames can read.
    raw_bytes_max = RAW_BYTES_MAX

    @contextmanager
    def of_topic(self, topic: str) -> Iterator[HandOver]:  # noqa: ARG002  (Others need to know.)
        """What executors do with the new frames of a segment."""
        yield drop

    def finished(self, row: "Row", part: SegmentPart) -> "Row":  # noqa: ARG002  (Others need to know.)
        """On the driver: what became of a segment that an executor has handed over."""
        return row


class _Sending(_Replacing):
    """Executors have the queue replace them."""

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader

    @contextmanager
    def of_topic(self, topic: str) -> Iterator[HandOver]:  # noqa: ARG002  (A segment knows its topic.)
        yield partial(send, self._reader)


class _Staging(_Replacing):
    """Executors leave them in files for the driver, which has the queue open."""

    def __init__(self, reader: QueueReader, queue: Connection) -> None:
        self._reader = reader
        self._queue = queue
        self._disk = reader.disk
        self._staging = Path()
        self.raw_bytes_max = Settings().storage.frame_raw_bytes_max

    @contextmanager
    def of_topic(self, topic: str) -> Iterator[HandOver]:
        self._staging = state_directory(self._reader, "compact", topic)
        remove_tree(self._disk, self._staging)
        try:
            self._disk.make_directory(self._staging)
            yield partial(stage, self._reader, self._staging)
        finally:
            remove_tree(self._disk, self._staging)

    def finished(self, row: "Row", part: SegmentPart) -> "Row":
        from pyspark.sql import Row

        if row.state != "replaced":
            return row
        try:
            apply(self._queue, part, staged(self._disk, self._staging, row.segment))
        except (Conflict, NotFound):
            # Retention of this very process, perhaps. The next run looks again.
            return Row(**{**row.asDict(), "state": "busy"})
        return row


@dataclass(frozen=True, slots=True)
class _Job:
    """The compaction of one topic."""

    reader: QueueReader
    topic: str
    replacing: _Replacing
    tombstone_age_ms: int
    min_dirty_ratio: float
    progress: ProgressCallback | None

    def run(self, spark: "SparkSession | None") -> CompactedTopic:
        parts = self.reader.segments(self.topic)
        if not any(part.is_sealed for part in parts):
            return CompactedTopic(self.topic)
        spark = spark or session()
        with self.replacing.of_topic(self.topic) as hand_over:
            work = Work(self.reader, parts, self.min_dirty_ratio, hand_over, self.replacing.raw_bytes_max)
            with watched(spark, self.progress, f"compacting {self.topic}"):
                rows = self._outcomes(spark, work).collect()
            rows = [self.replacing.finished(row, parts[row.segment]) for row in rows]
        return _summed(self.topic, rows)

    def _outcomes(self, spark: "SparkSession", work: Work) -> "DataFrame":
        """A row for each sealed segment that is still there: what became of it."""
        bounds: dict[int, list[tuple[int, int, int]]] = {}
        for number, (part, lane) in enumerate(zip(work.parts, _lane_numbers(work.parts), strict=True)):
            if part.is_sealed:
                bounds.setdefault(lane, []).append((part.start, part.end, number))
        placed = self._survivors(spark, work.parts).mapInArrow(segments_of(bounds), PLACED)
        return placed.groupBy("segment").applyInArrow(rewriting(work), OUTCOME)

    def _survivors(self, spark: "SparkSession", parts: Sequence[SegmentPart]) -> "DataFrame":
        """(lane, offset, key) of the latest message of each key, but for old tombstones; and the stamps."""
        from pyspark.sql import functions as sql

        cutoff_us = SystemClock().now_us() - self.tombstone_age_ms * 1000
        latest = sql.max(sql.struct("offset", "is_tombstone", "append_us")).alias("latest")
        # What stands alone removes nothing any more. While something of its key is before it, a tombstone
        # stays: should the job die in between, nothing comes back.
        is_over = (
            sql.col("latest.is_tombstone")
            & (sql.col("latest.append_us") <= sql.lit(cutoff_us))
            & (sql.col("first") == sql.col("latest.offset"))
        )
        if may_be_archived(self.reader, self.topic):
            # What its key had before may lie in the archive, where nobody looks here.
            is_over = sql.lit(False)
        numbered = list(zip(parts, _lane_numbers(parts), strict=True))
        keys = spread(spark, numbered, partial(keys_of, self.reader), KEYS)
        assert keys is not None, "there are parts"
        return (
            keys.groupBy("lane", "key")
            .agg(sql.min("first").alias("first"), latest)
            .where(~is_over)
            .select("lane", sql.col("latest.offset").alias("offset"), "key")
        )


def _lane_numbers(parts: Sequence[SegmentPart]) -> list[int]:
    """For each part, the number of its lane: short, because every key carries it."""
    numbers = {lane: number for number, lane in enumerate(dict.fromkeys(part.lane for part in parts))}
    return [numbers[part.lane] for part in parts]


def _summed(topic: str, rows: "list[Row]") -> CompactedTopic:
    seen = [row for row in rows if row.state != "gone"]
    replaced = [row for row in seen if row.state == "replaced"]
    gone_messages = sum(row.messages_before - row.messages_after for row in replaced)
    gone_bytes = sum(row.bytes_before - row.bytes_after for row in replaced)
    messages, size = (
        sum(getattr(row, name) for row in seen) for name in ("messages_before", "bytes_before")
    )
    return CompactedTopic(
        topic=topic,
        segments=len(seen),
        replaced=len(replaced),
        busy=sum(row.state == "busy" for row in seen),
        messages_before=messages,
        messages_after=messages - gone_messages,
        bytes_before=size,
        bytes_after=size - gone_bytes,
    )


def topics_to_compact(reader: MessageReader, topics: Iterable[str] | str | None) -> list[str]:
    """The topics to compact: those of these names and patterns that want it; without any, all that do.

    Raises InvalidRequest for a topic that was named and does not want it, and TopicNotFound.
    """
    known = reader.origins()
    if topics is None:
        return [topic for topic, origin in known.items() if origin is None and _wants_it(reader, topic)]
    texts = topic_texts(topics)
    if not texts:
        raise InvalidRequest("topics has no name in it: leave it out for all topics with cleanup=compact")
    named = {text for text in texts if not is_pattern(text)}
    for topic in sorted(named):
        _check_wants_it(reader, topic)
    patterns = [Pattern(text) for text in texts if is_pattern(text)]
    own = [topic for topic, origin in known.items() if origin is None]
    matching = {t for t in own if any(p.matches(t, None) for p in patterns) and _wants_it(reader, t)}
    return sorted(named | matching)


def _wants_it(reader: MessageReader, topic: str) -> bool:
    return reader.settings(topic).cleanup == "compact"


def _check_wants_it(reader: MessageReader, topic: str) -> None:
    settings = reader.settings(topic)
    if reader.origin(topic) is not None:
        raise InvalidRequest(f"{topic} holds dead letters: each of them is kept, whatever its key")
    if settings.cleanup != "compact":
        raise InvalidRequest(
            f"{topic} has cleanup=delete, so every message of a key is kept:"
            f" `quiver topic alter {topic} --set cleanup=compact` lets only the latest stay"
        )
