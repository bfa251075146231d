"""Topics as tables, for one statement of SQL."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from quivermq.disk import SystemDisk, remove_tree
from quivermq.errors import InvalidRequest, NotFound, TopicNotFound
from quivermq.reading.reader import AnyPath
from quivermq.spark.execution import translated
from quivermq.spark.jobs.state import job_reader, load
from quivermq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


# A name in backticks, texts and comments, and whatever may be the name of a topic.
_TOKEN = re.compile(
    r"""`(?P<quoted>(?:[^`]|``)*)`
    |'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"
    |--[^\n]*|/\*.*?\*/
    |(?P<bare>[A-Za-z0-9_](?:[A-Za-z0-9_.]|-(?!-))*)""",
    re.DOTALL | re.VERBOSE,
)
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEFORE_A_TABLE = {"from", "join"}
_QUERIES = ("select", "with", "values", "from", "table", "show", "describe", "desc", "explain")
_BEHIND_INSERT = {"into", "overwrite"}


def check_is_query(statement: str) -> None:
    """Raise InvalidRequest for a statement that is more than a question."""
    words = [match["bare"].casefold() for match in _TOKEN.finditer(statement) if match["bare"]]
    first = words[0] if words else ""
    # WITH and FROM may lead to an INSERT.
    inserts = any(word == "insert" and after in _BEHIND_INSERT for word, after in pairwise(words))
    if first not in _QUERIES or inserts:
        begin = first.upper() or "an empty statement"
        raise InvalidRequest(
            f"{'INSERT' if inserts else begin} is no query: a statement only asks, with SELECT, WITH,"
            " VALUES, SHOW, DESCRIBE or EXPLAIN; `quiver pipeline run` writes"
        )


def named_tables(statement: str, names: Iterable[str]) -> list[str]:
    """Those of the names that the statement may mean. Spark does not tell capitals from others."""
    words = set(_words(statement))
    folded = {word.casefold() for word in words}
    meant: dict[str, str] = {}
    for name in sorted(names):
        if name.casefold() not in folded:
            continue
        other = meant.setdefault(name.casefold(), name)
        if other != name and {other, name} <= words:
            raise InvalidRequest(f"{other} and {name} differ only in capitals, which is not enough in SQL")
        if name in words:
            meant[name.casefold()] = name
    return sorted(meant.values())


def with_quotes(statement: str, names: Iterable[str]) -> str:
    """The statement with backticks around names such as orders.dlq, where a table has to stand."""
    known = {name.casefold() for name in names}
    parts, done, before = [], 0, ""
    for match in _TOKEN.finditer(statement):
        word = match["bare"]
        if word and before in _BEFORE_A_TABLE and word.casefold() in known:
            parts += [statement[done : match.start()], quoted(word)]
            done = match.end()
        before = (word or "").casefold()
    return "".join([*parts, statement[done:]])


def quoted(name: str) -> str:
    """A name as it has to be written in SQL."""
    return name if _NEEDS_NO_QUOTES.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _words(statement: str) -> Iterator[str]:
    for match in _TOKEN.finditer(statement):
        if match["quoted"] is not None:
            yield match["quoted"].replace("``", "`")
        elif match["bare"]:
            yield match["bare"]


# The metadata of a column of text that nobody looked into: any bytes, as they were stored.
AS_STORED = {"quiver": "as stored"}

_INVALID_TEXT = "[INVALID_UTF8_STRING]"
# With all that a time has: microseconds, and the zone.
_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json"}


def file_format(file: Path) -> str:
    """The format that a file's name asks for. Raises InvalidRequest."""
    if file.suffix not in _FORMATS:
        raise InvalidRequest(f"{file} has to end with one of {', '.join(_FORMATS)}")
    return _FORMATS[file.suffix]


def check_parent(file: Path) -> None:
    """Raise NotFound unless there is a directory for the file."""
    if not SystemDisk().is_directory(file.absolute().parent):
        raise NotFound(f"there is no directory {file.absolute().parent}")


def check_names(columns: Sequence[str]) -> None:
    """Raise InvalidRequest where two columns have the same name, of which a program would see one."""
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InvalidRequest(f"there are two columns {twice[0]}: name one of them otherwise, with AS")


def write_file(frame: "DataFrame", file: Path) -> None:
    """Write the rows, in their order, and replace the file that is there.

    Keys and values that nobody made text of are bytes in Parquet. All other text has to be UTF-8: raises
    InvalidRequest otherwise. Spark writes directories: the only file of one is moved out of it. On a
    cluster the directory has to be one that all its machines see.
    """
    form = file_format(file)
    check_names(frame.columns)
    disk = SystemDisk()
    check_parent(file)
    unfinished = file.absolute().with_name(f".{file.name}.{os.getpid()}")
    try:
        with _valid_text(), translated():
            writer = _writable(frame, form).coalesce(1).write.mode("overwrite").format(form)
            if form != "parquet":
                writer = writer.option("timestampFormat", _TIME_FORMAT)
            (writer.option("header", True) if form == "csv" else writer).save(str(unfinished))
        parts = [name for name in disk.names(unfinished) if name.startswith("part-")]
        assert len(parts) == 1, f"Spark wrote {parts} for one partition"
        disk.rename(unfinished / parts[0], file)
        disk.sync_directory(file.absolute().parent)
    finally:
        remove_tree(disk, unfinished)


def _writable(frame: "DataFrame", form: str) -> "DataFrame":
    """The rows with text that can be written as such: Spark itself would write any bytes as text."""
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    columns = {}
    for field in frame.schema.fields:
        column = F.col("`" + field.name.replace("`", "``") + "`")
        if field.dataType.typeName() != "string":
            if form == "json" and "binary" in field.dataType.simpleString():
                columns[field.name] = _json_form(column, field.dataType)
            continue
        # The bytes stay the same. Where the statement casts, or does anything else, the mark is gone.
        is_bytes = form == "parquet" and field.metadata == AS_STORED
        columns[field.name] = column.cast("binary") if is_bytes else F.validate_utf8(column)
    return frame.withColumns(columns) if columns else frame


def _json_form(column: "Column", kind: "DataType") -> "Column":
    """Bytes as they are in JSON everywhere here: text or, where they are none, {"base64": …}."""
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.
    from pyspark.sql.types import ArrayType, BinaryType, StructType

    if isinstance(kind, BinaryType):
        text = column.cast("string")
        coded = F.to_variant_object(F.struct(F.base64(column).alias("base64")))
        return F.when(F.is_valid_utf8(text), text.cast("variant")).when(column.isNotNull(), coded)
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda item: _json_form(item, kind.elementType))
    if isinstance(kind, StructType):
        fields = [_json_form(column[name], kind[name].dataType).alias(name) for name in kind.names]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column


@contextmanager
def _valid_text() -> Iterator[None]:
    try:
        yield
    except InvalidRequest as error:
        if _INVALID_TEXT not in str(error):
            raise
        raise InvalidRequest(
            "some text is not valid UTF-8: select base64(value) or hex(value) instead of value, or write"
            " value as it is to a .parquet file, where it is binary"
        ) from error


# The queue's own state. A topic that is called so as well is not to be seen in SQL.
STATE_PREFIX = "quiver_"
STATE_TABLES = ("groups", "deliveries", "dead_letters", "segments")


def sql(
    statement: str,
    *,
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    binary: bool = False,
    spark: "SparkSession | None" = None,
) -> "DataFrame":
    """The rows of a statement in which every topic is a table of its name.

    A name such as `orders.dlq` is written in backticks; right behind FROM and JOIN it needs none.
    `quiver_groups`, `quiver_deliveries`, `quiver_dead_letters` and `quiver_segments` are the state of the
    queue. Keys and values are text, byte for byte what was stored; with `binary` they are bytes. Raises
    InvalidRequest for a statement that is wrong or no query, TopicNotFound for a table that is none.
    """
    check_is_query(statement)
    with closing(job_reader(path, server, key)) as reader:
        topics = reader.origins()
    # Of its own, so that no view of the caller's is replaced.
    spark = (spark or session()).newSession()
    states = {STATE_PREFIX + name: name for name in STATE_TABLES}
    names = {*topics, *states}
    with translated():
        for name in named_tables(statement, names):
            # A statement that names a topic twice must see the same of it in both places.
            messages = {"subscribe": name, "endingOffsets": "now"}
            options = {"table": states[name]} if name in states else messages
            frame = load(spark, reader, **options)
            (frame if binary else _as_text(frame)).createOrReplaceTempView(quoted(name))
        return _rows_of(spark, with_quotes(statement, names))


def _rows_of(spark: "SparkSession", statement: str) -> "DataFrame":
    from pyspark.errors import AnalysisException

    try:
        return spark.sql(statement)
    except AnalysisException as error:
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            name = (error.getMessageParameters() or {})["relationName"].strip("`")
            raise TopicNotFound.named(name) from None
        raise


def _as_text(frame: "DataFrame") -> "DataFrame":
    """Keys and values as Spark's strings, which are the same bytes, and are marked as such."""
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

    kinds = dict(frame.dtypes)
    taken = [name for name in ("key", "value") if kinds.get(name) == "binary"]
    texts = {name: F.col(name).cast("string").alias(name, metadata=AS_STORED) for name in taken}
    return frame.withColumns(texts) if texts else frame
