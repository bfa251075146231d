"""Rows into one file, which is there as a whole or not at all."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quivermq.disk import SystemDisk, remove_tree
from quivermq.errors import InvalidRequest, NotFound
from quivermq.spark.failures import translated

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

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
