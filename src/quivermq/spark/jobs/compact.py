"""`compact`: of the messages of a key only the latest stays, in topics with cleanup=compact."""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quivermq.clock import SystemClock
from quivermq.disk import SystemDisk, remove_tree
from quivermq.errors import Conflict, InvalidRequest, NotFound
from quivermq.model.names import Pattern, is_pattern
from quivermq.spark.execution import Progress, no_progress, translated, watched
from quivermq.spark.jobs.archive import may_be_archived
from quivermq.spark.jobs.state import state_directory
from quivermq.spark.place import AnyPath, LivePlace, Place, SegmentPart, Where, where_of
from quivermq.spark.session import session

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
    progress: Progress | None = None,
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
    where = where_of(path, server, key)
    with closing(where.place()) as place, _queue(where, place, dry_run) as queue:
        names = chosen_topics(place, topics)
        done = []
        for number, topic in enumerate(names):
            (progress or no_progress)("topics", number, len(names))
            job = _Job(where, place, topic, queue, tombstone_age_ms, min_dirty_ratio, dry_run, progress)
            with translated():
                done.append(job.run(spark))
        (progress or no_progress)("topics", len(names), len(names))
    return CompactSummary(str(where), dry_run, tuple(done), time.monotonic() - started)


def _check(tombstone_age_ms: int, min_dirty_ratio: float) -> None:
    if tombstone_age_ms < 0:
        raise InvalidRequest(f"tombstone_age_ms is 0 or more, not {tombstone_age_ms}")
    if not 0 <= min_dirty_ratio <= 1:
        raise InvalidRequest(f"min_dirty_ratio is a share, from 0 to 1, not {min_dirty_ratio}")


@contextmanager
def _queue(where: Where, place: LivePlace, dry_run: bool) -> Iterator[Any]:
    """Who replaces segments on the driver: the embedded queue, for a directory; None for a broker."""
    if place.directory is None or dry_run:
        yield None
        return
    # Before it is opened, which would make a directory that is not there.
    place.topics()
    advice = "compact through the broker that has it open, with server= (--server), or stop it"
    with where.queue(if_locked=advice) as queue:
        yield queue


@dataclass(frozen=True, slots=True)
class _Job:
    """The compaction of one topic."""

    where: Where
    place: LivePlace
    topic: str
    queue: Any
    tombstone_age_ms: int
    min_dirty_ratio: float
    dry_run: bool
    progress: Progress | None

    def run(self, spark: "SparkSession | None") -> CompactedTopic:
        parts = self.place.segments(self.topic)
        if not any(part.is_sealed for part in parts):
            return CompactedTopic(self.topic)
        spark = spark or session()
        staging = self._staging()
        try:
            if staging is not None:
                SystemDisk().make_directory(staging)
            with watched(spark, self.progress, f"compacting {self.topic}"):
                rows = self._outcomes(spark, parts, staging).collect()
            if staging is not None:
                rows = [self._applied(row, parts, staging) for row in rows]
        finally:
            if staging is not None:
                remove_tree(SystemDisk(), staging)
        return _told(self.topic, rows)

    def _staging(self) -> Path | None:
        """Where executors leave segments for the driver, which has the directory open. Emptied first."""
        if self.queue is None:
            return None
        directory = state_directory(self.where, "compact", self.topic)
        remove_tree(SystemDisk(), directory)
        return directory

    def _outcomes(
        self, spark: "SparkSession", parts: list[SegmentPart], staging: Path | None
    ) -> "DataFrame":
        """A row for each sealed segment that is still there: what became of it."""
        from quivermq.spark.jobs.compact_work import OUTCOME, PLACED, Work, rewriting, segments_of

        bounds: dict[int, list[tuple[int, int, int]]] = {}
        for number, (part, lane) in enumerate(zip(parts, _lane_numbers(parts), strict=True)):
            if part.is_sealed:
                bounds.setdefault(lane, []).append((part.start, part.end, number))
        work = Work(
            self.place,
            parts,
            self.min_dirty_ratio,
            self.dry_run,
            None if staging is None else str(staging),
            *([] if self.queue is None else [self.queue.settings.storage.frame_raw_bytes_max]),
        )
        placed = self._survivors(spark, parts).mapInArrow(segments_of(bounds), PLACED)
        return placed.groupBy("segment").applyInArrow(rewriting(work), OUTCOME)

    def _survivors(self, spark: "SparkSession", parts: list[SegmentPart]) -> "DataFrame":
        """(lane, offset, key) of the latest message of each key, but for old tombstones; and the stamps."""
        from pyspark.sql import functions as sql

        from quivermq.spark.jobs.compact_work import KEYS, keys_of

        cutoff_us = SystemClock().now_us() - self.tombstone_age_ms * 1000
        latest = sql.max(sql.struct("offset", "is_tombstone", "append_us")).alias("latest")
        # What stands alone removes nothing any more. While something of its key is before it, a tombstone
        # stays: should the job die in between, nothing comes back.
        is_over = (
            sql.col("latest.is_tombstone")
            & (sql.col("latest.append_us") <= sql.lit(cutoff_us))
            & (sql.col("first") == sql.col("latest.offset"))
        )
        if may_be_archived(self.place, self.topic):
            # What its key had before may lie in the archive, where nobody looks here.
            is_over = sql.lit(False)
        return (
            spark.range(0, len(parts), 1, len(parts))
            .mapInArrow(keys_of(self.place, parts, _lane_numbers(parts)), KEYS)
            .groupBy("lane", "key")
            .agg(sql.min("first").alias("first"), latest)
            .where(~is_over)
            .select("lane", sql.col("latest.offset").alias("offset"), "key")
        )

    def _applied(self, row: "Row", parts: list[SegmentPart], staging: Path) -> "Row":
        """On the driver: put what an executor has left into the directory."""
        from pyspark.sql import Row

        from quivermq.spark.jobs.compact_work import apply, staged

        if row.state != "replaced":
            return row
        try:
            for piece in staged(staging, row.segment):
                apply(self.queue, parts[row.segment], [piece])
        except (Conflict, NotFound):
            # Retention of this very process, perhaps. The next run looks again.
            return Row(**{**row.asDict(), "state": "busy"})
        return row


def _lane_numbers(parts: list[SegmentPart]) -> list[int]:
    """For each part, the number of its lane: short, because every key carries it."""
    numbers = {lane: number for number, lane in enumerate(dict.fromkeys(part.lane for part in parts))}
    return [numbers[part.lane] for part in parts]


def _told(topic: str, rows: "list[Row]") -> CompactedTopic:
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


def chosen_topics(place: Place, topics: Iterable[str] | str | None) -> list[str]:
    """The topics to compact: those of these names and patterns that want it; without any, all that do.

    Raises InvalidRequest for a topic that was named and does not want it, and TopicNotFound.
    """
    known = place.origins()
    if topics is None:
        return [topic for topic, origin in known.items() if origin is None and _wants_it(place, topic)]
    texts = [text.strip() for text in (topics.split(",") if isinstance(topics, str) else topics)]
    if not texts:
        raise InvalidRequest("topics has no name in it: leave it out for all topics with cleanup=compact")
    named = {text for text in texts if not is_pattern(text)}
    for topic in sorted(named):
        _check_wants_it(place, topic)
    patterns = [Pattern(text) for text in texts if is_pattern(text)]
    own = [topic for topic, origin in known.items() if origin is None]
    matching = {t for t in own if any(p.matches(t, None) for p in patterns) and _wants_it(place, t)}
    return sorted(named | matching)


def _wants_it(place: Place, topic: str) -> bool:
    return place.settings(topic).cleanup == "compact"


def _check_wants_it(place: Place, topic: str) -> None:
    settings = place.settings(topic)
    if place.origin(topic) is not None:
        raise InvalidRequest(f"{topic} holds dead letters: each of them is kept, whatever its key")
    if settings.cleanup != "compact":
        raise InvalidRequest(
            f"{topic} has cleanup=delete, so every message of a key is kept:"
            f" `quiver topic alter {topic} --set cleanup=compact` lets only the latest stay"
        )
