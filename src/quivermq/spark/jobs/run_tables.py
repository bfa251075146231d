"""The sources and steps of a pipeline as tables of Spark."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from quivermq.disk import SystemDisk
from quivermq.errors import InvalidRequest, NotFound, QuiverError
from quivermq.spark.failures import one_line, our_error, reworded
from quivermq.spark.jobs.run_file import JSON, RAW, Pipeline, PipelineSink, PipelineSource, PipelineStep
from quivermq.spark.jobs.state import fingerprint
from quivermq.spark.jobs.typed import typed
from quivermq.spark.jobs.where import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MALFORMED = "malformed"
_MESSAGE = "message"


class Tables(NamedTuple):
    """The tables by name, and the rows that a source could not read, by the topic they go to."""

    frames: dict[str, "DataFrame"]
    malformed: dict[str, "DataFrame"]


def make_tables(spark: "SparkSession", pipeline: Pipeline, where: Where) -> Tables:
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
                frame = _source(spark, pipeline, where, part, tables)
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
    spark: "SparkSession", pipeline: Pipeline, where: Where, source: PipelineSource, tables: Tables
) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    options = where.options() | {"subscribe": ",".join(source.topics), "startingOffsets": source.starting}
    if source.messages_per_trigger_max is not None:
        options["maxOffsetsPerTrigger"] = str(source.messages_per_trigger_max)
    frame = spark.readStream.format("quiver").options(**options | source.options).load()
    if source.format == RAW:
        return frame
    if source.format != JSON:
        return frame.withColumns({name: F.col(name).cast("string") for name in ("key", "value")})
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
