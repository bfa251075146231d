"""A user's own pipeline: read from a file, checked, and run once or for as long as somebody wants it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quivermq.errors import InvalidRequest, QuiverError
from quivermq.spark.failures import in_users_code, one_line, our_error, translated
from quivermq.spark.jobs.run_file import (
    CONTINUOUS,
    ONCE,
    Pipeline,
    PipelineSink,
    load_pipeline,
    malformed_sink,
)
from quivermq.spark.jobs.run_tables import in_file, make_tables, message_rows
from quivermq.spark.jobs.state import held, state_directory
from quivermq.spark.jobs.streaming import Standing, counting, wait_for
from quivermq.spark.jobs.where import AnyPath, Where, where_of
from quivermq.spark.progress import Progress
from quivermq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class SinkSummary:
    """What one sink did: `read` is how many messages came in for it, `written` how many rows it got."""

    name: str
    target: str
    columns: str
    read: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a pipeline did, or would do. `tables` has the columns of each table."""

    name: str
    mode: str
    tables: dict[str, str]
    sinks: list[SinkSummary]
    checkpoint: str
    dry_run: bool = False


def run(
    file: str | Path,
    *,
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    mode: str | None = None,
    spark: "SparkSession | None" = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    told: Callable[[Mapping[str, Standing]], None] | None = None,
    stop: threading.Event | None = None,
) -> RunSummary:
    """Run the pipeline of a file. docs/guides/pipelines.md says what such a file contains.

    Where the queue is, and the mode, may be given here or in the file; here counts more. In the mode
    `once` it ends when everything that was there is through; in `continuous` it goes on until `stop` is
    set. Every sink has a checkpoint: a pipeline that is started again goes on where it was, and each
    message has its effect once. With `dry_run` everything is checked and nothing is written.

    Raises InvalidRequest that names the file, the table and the key, and DirectoryLocked while the same
    pipeline is running elsewhere.
    """
    pipeline = load_pipeline(Path(file))
    mode = mode or pipeline.mode
    if mode not in (ONCE, CONTINUOUS):
        raise InvalidRequest(f"the mode is {ONCE} or {CONTINUOUS}, not {mode}")
    where = place_of_pipeline(pipeline, path, server, key)
    root = (
        pipeline.beside(pipeline.checkpoint)
        if pipeline.checkpoint
        else state_directory(where, "run", pipeline.name)
    )
    spark = (spark or session()).newSession()
    with translated():
        tables = make_tables(spark, pipeline, where)
        flows = _flows(pipeline, tables.frames, tables.malformed)
        standings: dict[str, Standing] = {}
        if not dry_run:
            with held(root):
                queries = _start(pipeline, where, mode, flows, root)
                with _named(pipeline, queries):
                    standings = wait_for(queries, _teller(progress, told), stop)
    return RunSummary(
        pipeline.name,
        mode,
        {name: _columns(frame) for name, frame in tables.frames.items()},
        [
            SinkSummary(sink.name, str(sink.topic or sink.parquet), _columns(frame), at.rows, at.written)
            for sink, frame in flows
            for at in [standings.get(sink.name) or Standing()]
        ],
        str(root),
        dry_run,
    )


def place_of_pipeline(
    pipeline: Pipeline, path: AnyPath | None, server: str | None, key: str | None
) -> Where:
    """Where its queue is: as the arguments say, or else the file. Raises InvalidRequest."""
    if path is not None or server is not None:
        return where_of(path, server, key)
    if pipeline.data is not None:
        return Where(path=str(pipeline.beside(pipeline.data)))
    if pipeline.server is not None:
        return Where(server=pipeline.server, key=key)
    raise InvalidRequest(
        f"{pipeline.file}: [pipeline]: data or server is missing, and nobody said where the queue is"
    )


def _flows(
    pipeline: Pipeline, frames: Mapping[str, "DataFrame"], malformed: Mapping[str, "DataFrame"]
) -> list[tuple[PipelineSink, "DataFrame"]]:
    """Each sink with the rows that go to it; what could not be read has one of its own."""
    from pyspark.errors import PySparkException

    flows = []
    for number, sink in enumerate(pipeline.sinks, 1):
        frame = frames[sink.table]
        try:
            flows.append((sink, message_rows(frame, sink) if sink.topic is not None else frame))
        except PySparkException as error:
            raise in_file(pipeline, f"[[sink]] {number} {sink.name!r}", error) from error
    for topic, frame in malformed.items():
        flows.append((PipelineSink(table="", name=malformed_sink(topic), topic=topic), frame))
    return flows


def _start(
    pipeline: Pipeline, where: Where, mode: str, flows: list[tuple[PipelineSink, "DataFrame"]], root: Path
) -> dict[str, "StreamingQuery"]:
    from pyspark.errors import PySparkException

    queries: dict[str, StreamingQuery] = {}
    try:
        for sink, frame in flows:
            writer = counting(frame).writeStream.queryName(sink.name).outputMode(sink.mode)
            writer = writer.option("checkpointLocation", str(root / sink.name))
            if sink.topic is not None:
                writer = writer.format("quiver").options(**where.options()).option("topic", sink.topic)
            else:
                assert sink.parquet is not None
                writer = writer.format("parquet").option("path", _target(pipeline, sink.parquet))
                writer = writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
            writer = writer.options(**sink.options)
            if mode == ONCE:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=pipeline.every)
            queries[sink.name] = writer.start()
    except BaseException as error:
        for query in queries.values():
            query.stop()
        if isinstance(error, PySparkException):
            raise in_file(pipeline, f"[[sink]] {sink.name!r}", error) from error
        raise
    return queries


@contextmanager
def _named(pipeline: Pipeline, queries: Mapping[str, "StreamingQuery"]) -> Iterator[None]:
    """Say of what fails at work which sink it was, on one line."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        ours = our_error(error) or in_users_code(str(error)) or QuiverError(one_line(error))
        failed = [name for name, query in queries.items() if query.exception() is not None]
        raise in_file(pipeline, f"[[sink]] {', '.join(failed)!r}", ours) from error


def _target(pipeline: Pipeline, parquet: str) -> str:
    return parquet if "://" in parquet else str(pipeline.beside(parquet))


def _teller(
    progress: Progress | None, told: Callable[[Mapping[str, Standing]], None] | None
) -> Callable[[Mapping[str, Standing]], None]:
    def tell(standings: Mapping[str, Standing]) -> None:
        if told is not None:
            told(standings)
        for name, standing in standings.items() if progress is not None else ():
            assert progress is not None
            total = None if standing.lag is None else standing.rows + standing.lag
            progress(name, standing.rows, total)

    return tell


def _columns(frame: "DataFrame") -> str:
    return ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)
