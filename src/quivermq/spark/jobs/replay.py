"""Messages of the past into another topic: any range, filtered and changed by SQL.

It runs as a stream that ends. The range is fixed and written down first, and every batch that has arrived
is written down as well, so that a run that was killed goes on where it was, and each message arrives
once.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.frame import OFFSET_MAX
from quivermq.model.lanes import PRIORITIES, Lane
from quivermq.model.names import NO_ORIGINS, Pattern, check_topic_name, is_pattern, origin_in
from quivermq.reading.reader import AnyPath, ProgressCallback, QueueReader, fingerprint, no_progress
from quivermq.reading.rows import Bound, check_bounds
from quivermq.spark.execution import cores_of, translated
from quivermq.spark.jobs.state import (
    Standing,
    held,
    job_reader,
    load,
    remember,
    remembered,
    state_directory,
    wait_for,
    with_text,
)
from quivermq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


Offsets = dict[str, dict[str, dict[str, int]]]

_COLUMNS = "topic string, partition int, priority string, offset bigint, timestamp timestamp"


@dataclass(frozen=True, slots=True)
class Ranges:
    """Half-open offsets of every lane, by topic, partition and priority, and moments that bound them.

    The offsets are what has to be read, the moments decide: clocks of producers are not always in order.
    """

    topics: list[str]
    starts: Offsets
    ends: Offsets
    since: str | None = None
    until: str | None = None
    """Moments as texts, because all of this is kept as JSON."""

    @property
    def messages(self) -> int:
        """How many offsets there are between the starts and the ends."""
        return _total(self.ends) - _total(self.starts)

    def options(self) -> dict[str, str]:
        """As options of the data source."""
        return {
            "subscribe": ",".join(self.topics),
            "startingOffsets": json.dumps(self.starts),
            "endingOffsets": json.dumps(self.ends),
        }

    @property
    def condition(self) -> str:
        """As SQL, the partitions that there were: the data source reads from the start what came later."""
        parts = [f"topic = '{topic}' AND partition < {len(self.ends[topic])}" for topic in self.topics]
        return " OR ".join(f"({part})" for part in parts)

    def cut(self, frame: "DataFrame") -> "DataFrame":
        """The messages of a frame that are in these partitions and lie between the moments."""
        frame = frame.where(self.condition)
        if self.since is not None:
            frame = frame.where(f"timestamp >= TIMESTAMP '{self.since}'")
        return frame if self.until is None else frame.where(f"timestamp < TIMESTAMP '{self.until}'")


def find_ranges(
    spark: "SparkSession",
    reader: QueueReader,
    topics: Sequence[str],
    start: Bound,
    end: Bound,
    archive: str | None = None,
) -> Ranges:
    """What the topics and their archive hold between two bounds now. Raises TopicNotFound, InvalidRequest.

    `archive` is the option of the data source.
    """
    check_bounds(start, end)
    lanes, names = _lanes(reader, topics, archive)
    first, last = start if isinstance(start, int) else 0, end if isinstance(end, int) else OFFSET_MAX
    starts = {lane: min(max(held[0], first), held[1]) for lane, held in lanes.items()}
    ends = {lane: max(starts[lane], min(held[1], last)) for lane, held in lanes.items()}
    since, until = (
        bound.astimezone(UTC).isoformat() if isinstance(bound, datetime) else None for bound in (start, end)
    )
    ranges = Ranges(names, _nested(starts), _nested(ends), since, until)
    if since is None and until is None:
        return ranges
    found = _by_time(spark, reader, ranges, archive)
    between = {lane: found.get(lane, (end, end)) for lane, end in ends.items()}
    starts, ends = ({lane: edges[side] for lane, edges in between.items()} for side in (0, 1))
    return replace(ranges, starts=_nested(starts), ends=_nested(ends))


def archive_options(archive: str | None) -> dict[str, str]:
    """An archive that was named, as options of the data source."""
    return {} if archive is None else {"archive": archive}


def _by_time(
    spark: "SparkSession", reader: QueueReader, ranges: Ranges, archive: str | None
) -> dict[Lane, tuple[int, int]]:
    """The first and the last offset between the moments, in the lanes that have any there."""
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    options = reader.options() | ranges.options() | archive_options(archive)
    rows = (
        ranges.cut(spark.read.format("quiver").options(**options).schema(_COLUMNS).load())
        .groupBy("topic", "partition", "priority")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
        .collect()
    )
    return {Lane(row.topic, row.partition, row.priority): (row.first, row.last + 1) for row in rows}


def _lanes(
    live: QueueReader, topics: Sequence[str], archive: str | None
) -> tuple[dict[Lane, tuple[int, int]], list[str]]:
    """All lanes of the topics, in use or not, and the names of the topics."""
    with closing(live.with_archive(archive)) as reader:
        names = named_topics(origins := reader.origins(), topics, origins)
        held = {lane: bounds for name in names for lane, bounds in reader.lanes(name).items()}
    # Also those that nobody has used yet: what comes into them later is none of ours.
    lanes = {Lane(lane.topic, lane.partition, priority): (0, 0) for lane in held for priority in PRIORITIES}
    return lanes | {lane: (bounds.start, bounds.end) for lane, bounds in held.items()}, names


def named_topics(
    there: Collection[str], wanted: Sequence[str], origins: Mapping[str, str | None] = NO_ORIGINS
) -> list[str]:
    """The topics that names and patterns stand for. Raises TopicNotFound, InvalidName."""
    found: dict[str, None] = {}
    for text in wanted:
        if is_pattern(text):
            matching = Pattern(text)
            matches = [name for name in there if matching.matches(name, origin_in(origins, name))]
        else:
            matches = [text] if text in there else []
        if not matches:
            raise TopicNotFound.named(text)
        found |= dict.fromkeys(matches)
    return list(found)


def _nested(offsets: Mapping[Lane, int]) -> Offsets:
    nested: Offsets = {}
    for lane, offset in offsets.items():
        nested.setdefault(lane.topic, {}).setdefault(str(lane.partition), {})[lane.priority] = offset
    return nested


def _total(offsets: Offsets) -> int:
    return sum(each for topic in offsets.values() for lanes in topic.values() for each in lanes.values())


# What a message keeps when nothing else is asked for. It is another message in another place, so its place
# does not come along, and neither does a moment at which it may have expired already.
_KEPT = "key, value, headers, priority, timestamp"

_BATCH_MESSAGES = 2_000_000
_BATCH_SECONDS = 5
_SAMPLE_ROWS = 10


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """What a replay did. `messages` are in the range, `read` were read by this run."""

    id: str
    topics: list[str]
    to: str
    messages: int
    read: int
    was_finished: bool
    dry_run: bool
    state: str
    matching: int | None = None
    sample: list[dict[str, Any]] = field(default_factory=list)


def replay(
    topics: Sequence[str],
    to: str,
    *,
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    to_path: AnyPath | None = None,
    to_server: str | None = None,
    to_key: str | None = None,
    archive: str | None = None,
    start: Bound = None,
    end: Bound = None,
    where: str | None = None,
    select: str | None = None,
    sql: str | None = None,
    rate: int | None = None,
    id: str | None = None,  # noqa: A002 - What it is called on the command line.
    again: bool = False,
    checkpoint: str | None = None,
    spark: "SparkSession | None" = None,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> ReplaySummary:
    """Send the messages between `start` and `end` of the topics to the topic `to`, each exactly once.

    `start` and `end` are offsets or moments, half-open. `where` and `select` are SQL, or `sql` is a whole
    statement over the table `messages`, in which key and value are text. `rate` is in messages a second.
    The target is in the same place unless `to_path` or `to_server` says otherwise. Archived messages are
    sent as well; a broker reads its archive itself, unless `archive` says where the executors find it.

    A run that was killed goes on when the same is asked again; one that is finished says so and does
    nothing, unless `again`. With another `id` it is another run. Raises InvalidRequest, TopicNotFound,
    and DirectoryLocked while the target directory, or the same replay, is in use.
    """
    check_topic_name(to)
    statement = replay_statement(where, select, sql)
    if rate is not None and rate < 1:
        raise InvalidRequest("the rate is at least 1 message a second")
    source = job_reader(path, server, key)
    target = source if to_path is None and to_server is None else job_reader(to_path, to_server, to_key)
    wish = [str(source), list(topics), str(target), to, str(start), str(end), statement]
    name = id or fingerprint(wish)
    root = Path(checkpoint).absolute() if checkpoint else state_directory(source, "replay", name)
    spark = (spark or session()).newSession()
    with translated():
        if dry_run:
            ranges = find_ranges(spark, source, topics, start, end, archive)
            frame = load(spark, source, **ranges.options(), **archive_options(archive))
            frame = _changed(spark, ranges.cut(frame), statement)
            sample = [row.asDict() for row in frame.take(_SAMPLE_ROWS)]
            return ReplaySummary(
                name, ranges.topics, to, ranges.messages, 0, False, True, str(root), frame.count(), sample
            )
        with held(root):
            run = _current_run(root, again)
            plan = remembered(run / "plan.json")
            if plan is None:
                ranges = find_ranges(spark, source, topics, start, end, archive)
                plan = {"wish": wish, "ranges": asdict(ranges), "archive": archive}
                plan["one_task"] = rate is not None
                remember(run / "plan.json", plan)
            if plan["wish"] != wish:
                raise InvalidRequest(
                    f"{name} is the id of a replay that was asked for something else: give another"
                )
            ranges = Ranges(**plan["ranges"])
            done = remembered(run / "done.json")
            read = 0
            if done is None:
                archived = archive_options(archive or plan["archive"])
                options = source.options() | ranges.options() | archived
                stream = spark.readStream.format("quiver").options(**options)
                # Of a slow replay little, so that little is done twice by a run that goes on.
                messages = _BATCH_MESSAGES if rate is None else min(_BATCH_MESSAGES, rate * _BATCH_SECONDS)
                stream = stream.option("maxOffsetsPerTrigger", str(messages))
                frame = _changed(spark, ranges.cut(stream.load()), statement)
                is_one_task = plan["one_task"]
                cores = cores_of(spark)
                if is_one_task:
                    frame = frame.coalesce(1)
                options = target.options() | rate_options(rate, is_one_task=is_one_task, cores=cores)
                writer = frame.writeStream.format("quiver").options(**options).option("topic", to)
                read = _finish(writer, run / "checkpoint", ranges.messages, progress or no_progress)
                remember(run / "done.json", {"messages": ranges.messages})
    return ReplaySummary(
        name, ranges.topics, to, ranges.messages, read, done is not None, dry_run=False, state=str(root)
    )


def replay_statement(where: str | None, select: str | None, sql: str | None) -> str:
    """The SQL that a replay asks for, over the table `messages`. Raises InvalidRequest."""
    if sql is not None:
        if where is not None or select is not None:
            raise InvalidRequest(
                "a whole statement has its own WHERE and SELECT: give sql, or where and select"
            )
        return sql
    condition = f" WHERE {where}" if where else ""
    return f"SELECT {select or _KEPT} FROM messages{condition}"


def rate_options(rate: int | None, *, is_one_task: bool, cores: int) -> dict[str, str]:
    """The rate as options of the data source.

    One task keeps a rate best. But a batch that was interrupted has to be cut into the same tasks again, or
    the target would not know its messages: what a replay began with stays, whatever rate is given later.
    """
    if rate is None:
        return {}
    return {"rateLimit": str(rate), "rateLimitTasks": "1" if is_one_task else str(cores)}


def _current_run(root: Path, again: bool) -> Path:
    """The directory of the run that is going on, or of the last one, or of the one that is wanted next."""
    number = 1
    while remembered(root / f"run-{number + 1}" / "plan.json") is not None:
        number += 1
    is_done = remembered(root / f"run-{number}" / "done.json") is not None
    return root / f"run-{number + 1 if again and is_done else number}"


def _changed(spark: "SparkSession", frame: "DataFrame", statement: str) -> "DataFrame":
    """The messages as the statement makes them, with the columns that can be written."""
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    with_text(frame).createOrReplaceTempView("messages")
    result = spark.sql(statement)
    kinds = dict(result.dtypes)
    return result.withColumns(
        {name: F.col(name).cast("binary") for name in ("key", "value") if kinds.get(name) == "string"}
    )


def _finish(writer: "DataStreamWriter", checkpoint: Path, total: int, progress: ProgressCallback) -> int:
    """Write until nothing is left, and return how many messages were read for it."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()

    def report(standings: Mapping[str, Standing]) -> None:
        progress("replaying", standings["replay"].rows, total)

    return wait_for({"replay": query}, report)["replay"].rows
