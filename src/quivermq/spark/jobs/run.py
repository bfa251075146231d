"""A user's own pipeline: read from a file, checked, and run once or for as long as somebody wants it."""

import importlib.util
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from quivermq.disk import SystemDisk
from quivermq.errors import InvalidRequest, NotFound, QuiverError
from quivermq.reading.reader import AnyPath, ProgressCallback, QueueReader, fingerprint, no_progress
from quivermq.spark.execution import in_users_code, one_line, our_error, reworded, translated
from quivermq.spark.jobs.run_file import (
    CONTINUOUS,
    JSON,
    ONCE,
    RAW,
    Pipeline,
    PipelineSink,
    PipelineSource,
    PipelineStep,
    load_pipeline,
    malformed_sink,
)
from quivermq.spark.jobs.state import (
    OnStandings,
    Standing,
    counting,
    held,
    job_reader,
    state_directory,
    wait_for,
    with_text,
)
from quivermq.spark.jobs.typed import typed
from quivermq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


MALFORMED = "malformed"
_MESSAGE = "message"


class Tables(NamedTuple):
    """The tables by name, and the rows that a source could not read, by the topic they go to."""

    frames: dict[str, "DataFrame"]
    malformed: dict[str, "DataFrame"]


def make_tables(spark: "SparkSession", pipeline: Pipeline, reader: QueueReader) -> Tables:
    """Every source and step of a pipeline, each a view of the session. Its errors name the part."""
    from pyspark.errors import PySparkException

    tables = Tables({}, {})
    parts: list[tuple[str, PipelineSource | PipelineStep]] = [
        *((f"[[source]] {number}", source) for number, source in enumerate(pipeline.sources, 1)),
        *((f"[[step]] {number}", step) for number, step in enumerate(pipeline.steps, 1)),
    ]
    for place, part in parts:
        try:
            if isinstance(part, PipelineSource):
                frame = _source(spark, pipeline, reader, part, tables)
            else:
                frame = _step(spark, pipeline, part, tables.frames)
            if part.watermark is not None:
                frame = frame.withWatermark(part.watermark["column"], part.watermark["delay"])
        except (PySparkException, QuiverError) as error:
            raise in_file(pipeline, f"{place} {part.name!r}", error) from error
        except Exception as error:
            # A function of the user's may raise anything.
            raise in_file(pipeline, f"{place} {part.name!r}", _in_function(error)) from error
        frame.createOrReplaceTempView(part.name)
        tables.frames[part.name] = frame
    return tables


def in_file(pipeline: Pipeline, place: str, error: Exception) -> QuiverError:
    """What is wrong with a part of a pipeline, with the name of the part."""
    ours = error if isinstance(error, QuiverError) else our_error(error) or InvalidRequest(one_line(error))
    return reworded(ours, f"{pipeline.file}: {place}: {ours}")


def _in_function(error: Exception) -> InvalidRequest:
    """What a step's function raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = "".join(traceback.format_exception_only(error)).strip()
    return InvalidRequest(f"python: {text} (line {last.lineno} of {last.filename})")


def _source(
    spark: "SparkSession", pipeline: Pipeline, reader: QueueReader, source: PipelineSource, tables: Tables
) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    options = reader.options() | {"subscribe": ",".join(source.topics), "startingOffsets": source.starting}
    if source.messages_per_trigger_max is not None:
        options["maxOffsetsPerTrigger"] = str(source.messages_per_trigger_max)
    frame = spark.readStream.format("quiver").options(**options | source.options).load()
    if source.format == RAW:
        return frame
    if source.format != JSON:
        return with_text(frame)
    assert source.schema is not None
    schema = source.schema
    if schema.endswith(".json"):
        schema = str(pipeline.beside(schema))
    rows = typed(frame, schema, message=_MESSAGE, malformed=MALFORMED)
    if source.malformed is None:
        return rows
    wrong = rows.where(F.col(MALFORMED).isNotNull()).select(
        f"{_MESSAGE}.key", F.col(MALFORMED).alias("value"), f"{_MESSAGE}.headers", f"{_MESSAGE}.timestamp"
    )
    others = tables.malformed.get(source.malformed)
    tables.malformed[source.malformed] = wrong if others is None else others.unionByName(wrong)
    return rows.where(F.col(MALFORMED).isNull()).drop(MALFORMED)


def _step(
    spark: "SparkSession", pipeline: Pipeline, step: PipelineStep, frames: Mapping[str, "DataFrame"]
) -> "DataFrame":
    if step.sql is not None:
        return spark.sql(step.sql)
    assert step.python is not None
    file, _, name = step.python.rpartition(":")
    function = getattr(load_module(pipeline.beside(file)), name, None)
    if not callable(function):
        raise InvalidRequest(f"python: there is no function {name} in {file}")
    frame: DataFrame = call_step(function, frames)
    return frame


def call_step(function: Callable[..., Any], frames: Mapping[str, Any]) -> Any:
    """What a function makes of the tables that its parameters are named after. Raises InvalidRequest."""
    unknown = [name for name in inspect.signature(function).parameters if name not in frames]
    if unknown:
        raise InvalidRequest(
            f"python: the parameter {unknown[0]} names no table before this step;"
            f" there are {', '.join(frames)}"
        )
    given = {name: frames[name] for name in inspect.signature(function).parameters}
    frame = function(**given)
    if not hasattr(frame, "createOrReplaceTempView"):
        raise InvalidRequest(f"python: the function has to return a DataFrame, not {type(frame).__name__}")
    return frame


def load_module(file: Path) -> ModuleType:
    """The Python module of a file beside the pipeline. Raises NotFound."""
    disk = SystemDisk()
    if not disk.exists(file):
        raise NotFound(f"python: there is no file {file}")
    name = f"quiver_pipeline_{file.stem}_{fingerprint(file)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidRequest(f"python: {file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)

    from pyspark import cloudpickle

    # Executors have no such module, so its functions are sent whole.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def message_rows(frame: "DataFrame", sink: PipelineSink) -> "DataFrame":
    """Rows as messages: as they are when there is a column value, otherwise as JSON of all columns."""
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    if "value" in frame.columns:
        return frame if sink.key is None else frame.withColumn("key", F.col(sink.key))
    value = F.to_json(
        F.struct(*(F.col(f"`{name}`") for name in frame.columns)), {"ignoreNullFields": "false"}
    )
    if sink.key is None:
        return frame.select(value.alias("value"))
    return frame.select(F.col(sink.key).cast("string").alias("key"), value.alias("value"))


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
    progress: ProgressCallback | None = None,
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
    reader = reader_of_pipeline(pipeline, path, server, key)
    root = (
        pipeline.beside(pipeline.checkpoint)
        if pipeline.checkpoint
        else state_directory(reader, "run", pipeline.name)
    )
    spark = (spark or session()).newSession()
    with translated():
        tables = make_tables(spark, pipeline, reader)
        flows = _flows(pipeline, tables.frames, tables.malformed)
        standings: dict[str, Standing] = {}
        if not dry_run:
            with held(root):
                queries = _start(pipeline, reader, mode, flows, root)
                with _named(pipeline, queries):
                    standings = wait_for(queries, _reporter(progress or no_progress, told), stop)
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


def reader_of_pipeline(
    pipeline: Pipeline, path: AnyPath | None, server: str | None, key: str | None
) -> QueueReader:
    """Where its queue is: as the arguments say, or else the file. Raises InvalidRequest."""
    if path is not None or server is not None:
        return job_reader(path, server, key)
    if pipeline.data is not None:
        return job_reader(pipeline.beside(pipeline.data), None, None)
    if pipeline.server is not None:
        return job_reader(None, pipeline.server, key)
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
    pipeline: Pipeline,
    reader: QueueReader,
    mode: str,
    flows: list[tuple[PipelineSink, "DataFrame"]],
    root: Path,
) -> dict[str, "StreamingQuery"]:
    from pyspark.errors import PySparkException

    queries: dict[str, StreamingQuery] = {}
    try:
        for sink, frame in flows:
            writer = counting(frame).writeStream.queryName(sink.name).outputMode(sink.mode)
            writer = writer.option("checkpointLocation", str(root / sink.name))
            if sink.topic is not None:
                writer = writer.format("quiver").options(**reader.options()).option("topic", sink.topic)
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


def _reporter(progress: ProgressCallback, told: OnStandings | None) -> OnStandings:
    def report(standings: Mapping[str, Standing]) -> None:
        if told is not None:
            told(standings)
        for name, standing in standings.items():
            progress(name, standing.rows, None if standing.lag is None else standing.rows + standing.lag)

    return report


def _columns(frame: "DataFrame") -> str:
    return ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)
