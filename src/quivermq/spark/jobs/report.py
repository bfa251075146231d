"""A page about a queue: what came in, how long it took, what failed, and what waits."""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quivermq.disk import OutputDisk, replace_file
from quivermq.errors import InvalidRequest, OffsetOutOfRange, QuiverError, TopicNotFound
from quivermq.reading.reader import AnyPath, ProgressCallback, QueueReader
from quivermq.reading.rows import ALL_TIMES, TimeRange
from quivermq.spark.execution import cores_of, results_of, translated, watched
from quivermq.spark.jobs.audit_tasks import LaneTask, bundled, lane_tasks
from quivermq.spark.jobs.report_counting import count_dead_letters, count_group, count_messages
from quivermq.spark.jobs.report_figures import Figures, Trouble, contents_of
from quivermq.spark.jobs.report_page import page
from quivermq.spark.jobs.state import job_reader
from quivermq.spark.session import session
from quivermq.spark.subscription import chosen_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GroupTask(NamedTuple):
    """A group in one topic."""

    topic: str
    group: str
    size_bytes: int = 1024 * 1024
    """About what its journals take."""

    def __str__(self) -> str:
        return f"group {self.group} in {self.topic}"

    def figures(self, reader: QueueReader, period: TimeRange) -> Iterator[Figures]:
        yield count_group(reader, self.topic, self.group, period)


class MessageTask(NamedTuple):
    """A part of a lane."""

    part: LaneTask
    is_compacted: bool

    @property
    def size_bytes(self) -> int:
        return self.part.size_bytes

    def __str__(self) -> str:
        return f"{self.part.lane}, offsets [{self.part.start}, {self.part.end})"

    def figures(self, reader: QueueReader, period: TimeRange) -> Iterator[Figures]:
        yield count_messages(reader, self.part, period, is_compacted=self.is_compacted)
        if reader.origin(self.part.lane.topic) is not None:
            yield count_dead_letters(reader, self.part, period)


Task = MessageTask | GroupTask


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """What a report is about, and where its page is."""

    where: str
    to: str
    is_dry_run: bool
    topics: int
    groups: int
    messages: int = 0
    bytes: int = 0
    dead_letters: int = 0
    unreadable: int = 0
    """How many parts could not be read; the page says which."""
    counting_seconds: float = 0.0
    """How long it took to look at all messages and journals."""
    seconds: float = 0.0


def report(
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    *,
    to: str | Path = "report.html",
    since: datetime | None = None,
    until: datetime | None = None,
    topics: Iterable[str] | str | None = None,
    spark: "SparkSession | None" = None,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> ReportSummary:
    """Write a page about a queue to a file, which needs nothing else to be looked at.

    Counted is what came in from `since` up to before `until`, in executors, a frame at a time. `topics` are
    names and patterns. Latencies come from the journals of groups, which only a directory has. A part that
    cannot be read is told on the page, and the rest is there. Raises InvalidRequest, TopicNotFound.
    """
    started = time.monotonic()
    period = TimeRange(_us(since, ALL_TIMES.since_us), _us(until, ALL_TIMES.until_us))
    if period.since_us >= period.until_us:
        raise InvalidRequest("since is not before until, so that no time is left between them")
    with closing(job_reader(path, server, key)) as reader, translated():
        tasks, stored_bytes = _planned(reader, chosen_topics(topics, reader.origins()), period)
        groups = len({task.group for task in tasks if isinstance(task, GroupTask)})
        if dry_run:
            size = sum(stored_bytes.values())
            return ReportSummary(str(reader), str(to), True, len(stored_bytes), groups, bytes=size)
        spark = spark or session()
        counting = time.monotonic()
        bundles = bundled(tasks, lambda task: task.size_bytes, cores_of(spark))
        with watched(spark, progress, "counting"):
            figures = results_of(spark, bundles, partial(_count, reader, period))
        counting_seconds = time.monotonic() - counting
        contents = contents_of(
            figures,
            where=str(reader),
            made_at=datetime.now(UTC),
            since=since,
            until=until,
            stored_bytes=stored_bytes,
            has_journals=reader.files_root() is not None,
        )
    # In one step, so that nobody sees half of it.
    replace_file(OutputDisk(), Path(to).absolute(), page(contents).encode())
    return ReportSummary(
        where=str(reader),
        to=str(to),
        is_dry_run=False,
        topics=len(contents.topics),
        groups=groups,
        messages=contents.messages,
        bytes=contents.bytes,
        dead_letters=sum(line.count for line in contents.reasons),
        unreadable=len(contents.troubles),
        counting_seconds=counting_seconds,
        seconds=time.monotonic() - started,
    )


def _us(moment: datetime | None, otherwise: int) -> int:
    if moment is None:
        return otherwise
    if moment.tzinfo is None:
        raise InvalidRequest(f"{moment} has no time zone: use datetime(…, tzinfo=UTC)")
    return round(moment.timestamp() * 1_000_000)


def _planned(
    reader: QueueReader, topics: list[str], period: TimeRange
) -> tuple[list[Task], dict[str, int]]:
    """What there is to count, and how many bytes each topic takes on disk."""
    tasks, stored_bytes = list[Task](), dict[str, int]()
    for topic in topics:
        try:
            settings, lanes = reader.settings(topic), reader.lanes(topic)
            groups = reader.groups(topic)
        except TopicNotFound:
            continue  # Somebody has just deleted it.
        stored_bytes[topic] = sum(bounds.bytes for bounds in lanes.values())
        # Whole segments that came in before are not looked at.
        used = [lane for lane, bounds in lanes.items() if bounds.end and period.since_us > 0]
        starts = {lane: reader.first_since(lane, period.since_us) for lane in used}
        for part in lane_tasks(reader, [topic]):
            begun = part._replace(start=max(part.start, starts.get(part.lane, 0)))
            if begun.start < begun.end:
                tasks.append(MessageTask(begun, settings.cleanup == "compact"))
        tasks += [GroupTask(topic, group) for group in groups]
    return tasks, stored_bytes


def _count(reader: QueueReader, period: TimeRange, tasks: list[Task]) -> Iterator[Figures]:
    """In an executor: the figures of each task, or what kept it from having any."""
    with closing(reader):
        for task in tasks:
            try:
                yield from task.figures(reader, period)
            except OffsetOutOfRange:
                continue  # Retention was faster.
            except QuiverError as error:
                yield Trouble(str(task), str(error))
