"""A pipeline as it is declared in a file: sources, steps and sinks.

Everything that can be said about it without Spark is said here, naming the file, the table and the key.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from quivermq.disk import SystemDisk, read_file
from quivermq.errors import InvalidRequest, NotFound
from quivermq.model.names import check_topic_name
from quivermq.spark.jobs.state import is_file_name


class TomlReader:
    """Takes tables of TOML to pieces, and knows how to say what is wrong with one."""

    def __init__(self, file: Path, choices: Mapping[tuple[str, str], tuple[str, ...]]) -> None:
        self._file = file
        self._choices = choices

    def error(self, where: str, key: str | None, reason: str) -> InvalidRequest:
        """What is wrong with a key of a table."""
        place = where if key is None else f"{where}: {key}"
        return InvalidRequest(f"{self._file}: {place} {reason}")

    def table(self, name: str, given: Any) -> Mapping[str, Any]:
        """A table that has to be there."""
        if not isinstance(given, Mapping):
            raise self.error(f"[{name}]", None, "is missing" if given is None else "is no table")
        return given

    def tables(self, document: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The tables of an array, each with how to call it."""
        given = document.get(name, [])
        if not isinstance(given, list):
            raise self.error(f"[{name}]", None, f"is written [[{name}]], because there may be many")
        return [(f"[[{name}]] {number}", self.table(name, each)) for number, each in enumerate(given, 1)]

    def check_keys(self, where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """Raise InvalidRequest for a key that nobody knows, with the one that may be meant."""
        for key in given.keys() - set(known):
            close = get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise self.error(where, key, f"is not known: {hint}")

    def record(
        self,
        kind: type,
        table: str,
        where: str,
        given: Mapping[str, Any],
        parts: Mapping[str, Any] | None = None,
    ) -> Any:
        """A table as a dataclass, each key of the type of its field. `parts` are no keys of the table."""
        parts = parts or {}
        named = [each for each in fields(kind) if each.name not in parts]
        known = ["from" if each.name == "table" else each.name for each in named]
        self.check_keys(where, {name: 0 for name in given if name != "table"}, tuple(known))
        for each in named:
            if each.name not in given:
                if each.default is MISSING and each.default_factory is MISSING:
                    raise self.error(where, each.name, "is missing")
                continue
            self._check_type(where, table, each.name, each.type, given[each.name])
        return kind(**given, **parts)

    def _check_type(self, where: str, table: str, key: str, kind: Any, value: object) -> None:
        kinds = (
            [each for each in get_args(kind) if each is not type(None)]
            if isinstance(kind, UnionType)
            else [kind]
        )
        if not any(_fits(each, value) for each in kinds):
            wanted = " or ".join(_WORDS[get_origin(each) or each] for each in kinds)
            raise self.error(where, key, f"is {wanted}, not {value!r:.80}")
        choices = self._choices.get((table, key))
        if choices is not None and value not in choices:
            raise self.error(where, key, f"is one of {', '.join(choices)}, not {value!r:.80}")


_WORDS = {str: "a text", int: "a whole number", list: "a list of texts", dict: "a table of texts"}


def _fits(kind: Any, value: object) -> bool:
    match get_origin(kind) or kind:
        case builtin if builtin is list:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case builtin if builtin is dict:
            return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
        case builtin if builtin is int:
            return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


_FILE_BYTES_MAX = 1024 * 1024

ONCE, CONTINUOUS = "once", "continuous"
RAW, TEXT, JSON = "raw", "text", "json"
_CHOICES = {
    ("pipeline", "mode"): (ONCE, CONTINUOUS),
    ("source", "format"): (RAW, TEXT, JSON),
    ("sink", "mode"): ("append", "update", "complete"),
}


@dataclass(frozen=True, slots=True)
class PipelineSource:
    """Topics that are a table of this name."""

    name: str
    topics: list[str]
    format: str = RAW
    schema: str | None = None
    malformed: str | None = None
    starting: str = "earliest"
    watermark: dict[str, str] | None = None
    messages_per_trigger_max: int | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """A table that is made of those before it, by SQL or by a function."""

    name: str
    sql: str | None = None
    python: str | None = None
    watermark: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PipelineSink:
    """Where the rows of a table go: a topic, or a directory of Parquet files."""

    table: str
    name: str
    topic: str | None = None
    parquet: str | None = None
    mode: str = "append"
    key: str | None = None
    partition_by: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All of a file. Paths in it are relative to the directory of the file."""

    file: Path
    name: str
    mode: str = ONCE
    every: str = "1 second"
    checkpoint: str | None = None
    data: str | None = None
    server: str | None = None
    sources: tuple[PipelineSource, ...] = ()
    steps: tuple[PipelineStep, ...] = ()
    sinks: tuple[PipelineSink, ...] = ()

    def beside(self, path: str) -> Path:
        """A path of the file, as seen from where the file is."""
        return self.file.absolute().parent / path


def load_pipeline(file: Path) -> Pipeline:
    """The pipeline that a file declares. Raises NotFound, and InvalidRequest that says what is wrong."""
    try:
        document = tomllib.loads(read_file(SystemDisk(), file, bytes_max=_FILE_BYTES_MAX).decode())
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except ValueError as error:
        raise InvalidRequest(f"{file} is not TOML: {error}") from None
    return pipeline_of(file, document)


def pipeline_of(file: Path, document: Mapping[str, Any]) -> Pipeline:
    """The pipeline that a parsed file declares. Raises InvalidRequest."""
    reading = TomlReader(file, _CHOICES)
    reading.check_keys("the file", document, ("pipeline", "source", "step", "sink"))
    head = reading.table("pipeline", document.get("pipeline"))
    sources = tuple(
        reading.record(PipelineSource, "source", *each) for each in reading.tables(document, "source")
    )
    steps = tuple(reading.record(PipelineStep, "step", *each) for each in reading.tables(document, "step"))
    sinks = tuple(_sink(reading, *each) for each in reading.tables(document, "sink"))
    parts = {"file": file, "sources": sources, "steps": steps, "sinks": sinks}
    pipeline: Pipeline = reading.record(Pipeline, "pipeline", "[pipeline]", head, parts)
    _check(reading, pipeline)
    return pipeline


def malformed_sink(topic: str) -> str:
    """The name of the sink for what sources could not read, which writes to that topic."""
    return f"malformed-{topic}"


def _sink(reading: TomlReader, where: str, given: Mapping[str, Any]) -> PipelineSink:
    # `from` is a word of Python's, and the natural one in the file.
    if "table" in given:
        raise reading.error(where, "table", "is called `from`")
    renamed = {("table" if name == "from" else name): value for name, value in given.items()}
    if "from" not in given:
        raise reading.error(where, "from", "is missing: it names a source or a step")
    target = given.get("topic") or given.get("parquet")
    sink: PipelineSink = reading.record(
        PipelineSink, "sink", where, {"name": str(target).replace("/", "_"), **renamed}
    )
    return sink


def _check(reading: TomlReader, pipeline: Pipeline) -> None:
    if not pipeline.sources:
        raise reading.error("[[source]]", None, "is missing: a pipeline reads from somewhere")
    if not pipeline.sinks:
        raise reading.error("[[sink]]", None, "is missing: a pipeline writes to somewhere")
    if pipeline.data is not None and pipeline.server is not None:
        raise reading.error("[pipeline]", "server", "and data are both there: a queue is in one place")
    _check_name(reading, "[pipeline]", pipeline.name)
    tables: set[str] = set()
    for number, source in enumerate(pipeline.sources, 1):
        _check_source(reading, f"[[source]] {number}", source)
        _add(reading, f"[[source]] {number}", source.name, tables)
    for number, step in enumerate(pipeline.steps, 1):
        where = f"[[step]] {number}"
        if (step.sql is None) == (step.python is None):
            raise reading.error(where, "sql", "or python: a step has one of them")
        if step.python is not None and ":" not in step.python:
            raise reading.error(where, "python", 'is a file and a function in it: "steps.py:enrich"')
        _check_watermark(reading, where, step.watermark)
        _add(reading, where, step.name, tables)
    taken = {
        malformed_sink(source.malformed) for source in pipeline.sources if source.malformed is not None
    }
    _check_sinks(reading, pipeline.sinks, tables, taken)


def _check_source(reading: TomlReader, where: str, source: PipelineSource) -> None:
    if not source.topics:
        raise reading.error(where, "topics", "is empty: name at least one")
    if (source.format == JSON) != (source.schema is not None):
        raise reading.error(where, "schema", f"belongs to format = {JSON!r}, and is needed there")
    if source.malformed is not None:
        if source.format != JSON:
            raise reading.error(where, "malformed", f"belongs to format = {JSON!r}")
        check_topic_name(source.malformed)
    if source.messages_per_trigger_max is not None and source.messages_per_trigger_max < 1:
        raise reading.error(where, "messages_per_trigger_max", "is at least 1")
    _check_watermark(reading, where, source.watermark)


def _check_watermark(reading: TomlReader, where: str, watermark: dict[str, str] | None) -> None:
    if watermark is not None and watermark.keys() != {"column", "delay"}:
        raise reading.error(where, "watermark", 'is { column = "…", delay = "10 minutes" }')


def _check_sinks(
    reading: TomlReader, sinks: tuple[PipelineSink, ...], tables: set[str], names_taken: set[str]
) -> None:
    names = set(names_taken)
    for number, sink in enumerate(sinks, 1):
        where = f"[[sink]] {number}"
        if (sink.topic is None) == (sink.parquet is None):
            raise reading.error(where, "topic", "or parquet: a sink has one of them")
        if sink.table not in tables:
            raise reading.error(where, "from", f"is {sink.table!r}, there are {', '.join(sorted(tables))}")
        if sink.parquet is not None and (sink.mode != "append" or sink.key is not None):
            raise reading.error(where, "mode", "and key are for topics: Parquet files are only appended to")
        if sink.topic is not None:
            check_topic_name(sink.topic)
            if sink.partition_by:
                raise reading.error(where, "partition_by", "is for Parquet files")
        _check_name(reading, where, sink.name)
        if sink.name in names:
            raise reading.error(
                where, "name", f"{sink.name!r} is the name of another sink: give this one its own"
            )
        names.add(sink.name)


def _check_name(reading: TomlReader, where: str, name: str) -> None:
    if not is_file_name(name):
        raise reading.error(where, "name", f"{name!r} is no name for a directory, and its state is in one")


def _add(reading: TomlReader, where: str, name: str, tables: set[str]) -> None:
    if not name.isidentifier():
        raise reading.error(
            where, "name", f"{name!r} is no name for a table: letters, digits and _ make one"
        )
    # Spark does not tell capitals from others.
    if name.casefold() in {table.casefold() for table in tables}:
        raise reading.error(where, "name", f"{name!r} is the name of another table")
    tables.add(name)
