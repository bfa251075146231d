"""Messages of the past into another topic: any range, filtered and changed by SQL.

It runs as a stream that ends. The range is fixed and written down first, and every batch that has arrived
is written down as well, so that a run that was killed goes on where it was, and each message arrives
once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quivermq.errors import InvalidRequest
from quivermq.spark.failures import translated
from quivermq.spark.jobs.ranges import Bound, Ranges, archive_options, find_ranges
from quivermq.spark.jobs.state import fingerprint, held, remember, remembered, state_directory
from quivermq.spark.jobs.streaming import Standing, wait_for
from quivermq.spark.jobs.where import AnyPath, where_of
from quivermq.spark.progress import Progress
from quivermq.spark.session import session
from quivermq.spark.spread import cores_of
from quivermq.topic.names import check_topic_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# What a message keeps when nothing else is asked for. It is another message in another place, so its place
# does not come along, and neither does a moment at which it may have expired already.
_KEPT = "key, value, headers, priority, timestamp"

_BATCH_MESSAGES = 2_000_000
# Of a slow replay, so that little is done twice by a run that goes on.
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
    progress: Progress | None = None,
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
    source = where_of(path, server, key)
    target = source if to_path is None and to_server is None else where_of(to_path, to_server, to_key)
    wish = [str(source), list(topics), str(target), to, str(start), str(end), statement]
    name = id or fingerprint(wish)
    root = Path(checkpoint).absolute() if checkpoint else state_directory(source, "replay", name)
    spark = (spark or session()).newSession()
    with translated():
        if dry_run:
            ranges = find_ranges(spark, source, topics, start, end, archive)
            frame = source.read(spark, **ranges.options(), **archive_options(archive))
            return _tried(spark, frame, ranges, statement, (name, to, str(root)))
        with held(root):
            run = _current_run(root, again)
            plan = remembered(run / "plan.json")
            if plan is None:
                ranges = find_ranges(spark, source, topics, start, end, archive)
                plan = {"wish": wish, "ranges": ranges.as_json(), "archive": archive}
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
                archived = archive_options(archive or plan.get("archive"))
                options = source.options() | ranges.options() | archived
                stream = spark.readStream.format("quiver").options(**options)
                stream = stream.option("maxOffsetsPerTrigger", str(_batch_messages(rate)))
                frame = _changed(spark, ranges.cut(stream.load()), statement)
                is_one_task = plan.get("one_task", rate is not None)
                cores = cores_of(spark)
                if is_one_task:
                    frame = frame.coalesce(1)
                options = target.options() | rate_options(rate, is_one_task=is_one_task, cores=cores)
                writer = frame.writeStream.format("quiver").options(**options).option("topic", to)
                read = _finish(writer, run / "checkpoint", ranges.messages, progress)
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


def _batch_messages(rate: int | None) -> int:
    return _BATCH_MESSAGES if rate is None else min(_BATCH_MESSAGES, rate * _BATCH_SECONDS)


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

    # Spark's strings are the same bytes, so they come out as they went in.
    texts = {name: F.col(name).cast("string") for name in ("key", "value")}
    frame.withColumns(texts).createOrReplaceTempView("messages")
    result = spark.sql(statement)
    kinds = dict(result.dtypes)
    return result.withColumns(
        {name: F.col(name).cast("binary") for name in texts if kinds.get(name) == "string"}
    )


def _finish(writer: "DataStreamWriter", checkpoint: Path, total: int, progress: Progress | None) -> int:
    """Write until nothing is left, and return how many messages were read for it."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()

    def told(standings: Any) -> None:
        if progress is not None:
            progress("replaying", standings["replay"].rows, total)

    standing: Standing = wait_for({"replay": query}, told)["replay"]
    return standing.rows


def _tried(
    spark: "SparkSession",
    messages: "DataFrame",
    ranges: Ranges,
    statement: str,
    names: tuple[str, str, str],
) -> ReplaySummary:
    frame = _changed(spark, ranges.cut(messages), statement)
    sample = [row.asDict() for row in frame.take(_SAMPLE_ROWS)]
    name, to, root = names
    return ReplaySummary(
        name,
        ranges.topics,
        to,
        ranges.messages,
        0,
        False,
        True,
        root,
        matching=frame.count(),
        sample=sample,
    )
