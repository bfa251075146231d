"""Dead letters back to where they came from, chosen by SQL and written down in an audit.

Spark chooses, the queue moves: its own redrive leaves each message in exactly one of the two topics,
whatever dies in between. What a run is about to do, and what it has done, is in the topic `quiver.audit`.
A run that was killed is run again, and finds what is left.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from quivermq.clock import SystemClock
from quivermq.errors import InvalidRequest
from quivermq.model.lanes import lane_number
from quivermq.reading.reader import AnyPath, ProgressCallback, QueueReader
from quivermq.spark.execution import translated, watched
from quivermq.spark.jobs.state import job_reader, load, with_text
from quivermq.spark.session import session
from quivermq.spark.subscription import check_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUDIT_TOPIC = "quiver.audit"
# As many as a broker takes in one call.
BATCH_MESSAGES_MAX = 10_000
_PLACE = ("topic", "partition", "priority", "offset")
_SAMPLE_ROWS = 10


class LetterPlace(NamedTuple):
    """Where a dead letter is."""

    topic: str
    partition: int
    priority: str
    offset: int

    @property
    def id(self) -> str:
        """How the queue calls it."""
        return f"{self.partition}-{lane_number(self.priority)}-{self.offset}"


@dataclass(frozen=True, slots=True)
class RedriveSummary:
    """What a redrive did. What was chosen and not moved was gone already, or has nowhere to go back to."""

    run: str
    chosen: int
    moved: int
    batches: int
    topics: dict[str, int]
    audit: str | None
    dry_run: bool
    sample: list[dict[str, Any]] = field(default_factory=list)


def redrive(
    topics: Sequence[str] | None = None,
    *,
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    where: str | None = None,
    sql: str | None = None,
    limit: int | None = None,
    batch_messages: int = 1000,
    spark: "SparkSession | None" = None,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> RedriveSummary:
    """Send the dead letters of the topics, all or those that SQL chooses, back to where they came from.

    `where` is a condition over the columns of the table `dead_letters`, such as `reason = 'timeout' AND
    died_at > now() - INTERVAL 1 DAY`; `sql` is a whole statement over it, whose rows have topic,
    partition, priority and offset. Keys and values are text. A message that fails again is another dead
    letter.

    Raises InvalidRequest, TopicNotFound for a name that is no topic, DirectoryLocked while somebody has the
    directory open, Unreachable.
    """
    reader = job_reader(path, server, key)
    statement = redrive_statement(where, sql, limit)
    if not 1 <= batch_messages <= BATCH_MESSAGES_MAX:
        raise InvalidRequest(f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, not {batch_messages}")
    with closing(reader):
        check_named(topics, reader.origins())
    spark = (spark or session()).newSession()
    with translated():
        frame = _chosen(spark, reader, topics, statement)
        sample = [row.asDict() for row in frame.take(_SAMPLE_ROWS)] if dry_run else []
        with watched(spark, progress, "looking for dead letters"):
            rows = frame.select(*_PLACE).distinct().orderBy(*_PLACE).collect()
    letters = [LetterPlace(*row) for row in rows]
    counts = {topic: len(list(each)) for topic, each in groupby(letters, key=attrgetter("topic"))}
    run, moved, batches = str(uuid.uuid4()), 0, list(batches_of(letters, batch_messages))
    if letters and not dry_run:
        with reader.open_queue() as queue:
            audit = Audit(queue, run)
            audit.add("begin", statement=statement, chosen=counts)
            for number, (topic, ids) in enumerate(batches):
                moved += _move(queue, audit, number, topic, ids)
                if progress is not None:
                    progress("sending back", moved, len(letters))
            audit.add("end", moved=moved)
    audit_topic = AUDIT_TOPIC if letters and not dry_run else None
    return RedriveSummary(run, len(letters), moved, len(batches), counts, audit_topic, dry_run, sample)


def redrive_statement(where: str | None, sql: str | None, limit: int | None) -> str:
    """The SQL that chooses, over the table `dead_letters`. Raises InvalidRequest."""
    if limit is not None and limit < 1:
        raise InvalidRequest("the limit is at least 1")
    if sql is not None:
        if where is not None or limit is not None:
            raise InvalidRequest(
                "a whole statement has its own WHERE and LIMIT: give sql, or where and limit"
            )
        return sql
    condition = f" WHERE {where}" if where else ""
    # The oldest first, so that a limit means the same to everybody.
    # On a line of its own, because the condition may end with a comment.
    oldest = (
        "" if limit is None else f"\nORDER BY died_at, topic, partition, priority, offset LIMIT {limit}"
    )
    return f"SELECT * FROM dead_letters{condition}{oldest}"


def _chosen(
    spark: "SparkSession", reader: QueueReader, topics: Sequence[str] | None, statement: str
) -> "DataFrame":
    options = {"table": "dead_letters"} | ({"subscribe": ",".join(topics)} if topics else {})
    with_text(load(spark, reader, **options)).createOrReplaceTempView("dead_letters")
    frame = spark.sql(statement)
    missing = [name for name in _PLACE if name not in frame.columns]
    if missing:
        raise InvalidRequest(
            f"the statement has to select {', '.join(_PLACE)} of dead_letters:"
            f" {', '.join(missing)} is missing"
        )
    return frame


def batches_of(
    letters: Sequence[LetterPlace], batch_messages: int
) -> Iterator[tuple[str, list[LetterPlace]]]:
    """Sorted dead letters in batches, each of one topic."""
    for topic, each in groupby(letters, key=attrgetter("topic")):
        of_topic = list(each)
        for start in range(0, len(of_topic), batch_messages):
            yield topic, of_topic[start : start + batch_messages]


def _move(queue: Any, audit: "Audit", number: int, topic: str, letters: list[LetterPlace]) -> int:
    audit.add("batch", batch=number, topic=topic, offsets=ranges_of(letters))
    try:
        moved: int = queue.queue(topic).redrive(ids=[letter.id for letter in letters])
    except Exception as error:
        audit.add("failed", batch=number, topic=topic, error=f"{type(error).__name__}: {error}")
        raise
    audit.add("moved", batch=number, topic=topic, moved=moved)
    return moved


def ranges_of(letters: Sequence[LetterPlace]) -> dict[str, list[list[int]]]:
    """Sorted dead letters of a topic as half-open ranges of offsets, by partition and priority."""
    ranges: dict[str, list[list[int]]] = {}
    for letter in letters:
        lane = ranges.setdefault(f"{letter.partition}/{letter.priority}", [])
        if lane and lane[-1][1] == letter.offset:
            lane[-1][1] += 1
        else:
            lane.append([letter.offset, letter.offset + 1])
    return ranges


class Audit:
    """Writes down what a run does, each entry durable before the next step."""

    def __init__(self, queue: Any, run: str) -> None:
        self._queue = queue.queue(AUDIT_TOPIC)
        self._run = run

    def add(self, event: str, **facts: object) -> None:
        at_us = SystemClock().now_us()
        entry = {"job": "redrive", "run": self._run, "event": event, "at_us": at_us, **facts}
        self._queue.put(json.dumps(entry).encode(), key=self._run.encode())
