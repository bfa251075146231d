"""Rows into one file, which is there as a whole or not at all."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from quivermq.disk import SystemDisk, remove_tree
from quivermq.errors import InvalidRequest, NotFound
from quivermq.spark.failures import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json"}


def file_format(file: Path) -> str:
    """The format that a file's name asks for. Raises InvalidRequest."""
    if file.suffix not in _FORMATS:
        raise InvalidRequest(f"{file} has to end with one of {', '.join(_FORMATS)}")
    return _FORMATS[file.suffix]


def write_file(frame: "DataFrame", file: Path) -> None:
    """Write the rows, in their order, and replace the file that is there.

    Spark writes directories: the only file of one is moved out of it. On a cluster the directory has to
    be one that all its machines see.
    """
    form = file_format(file)
    disk = SystemDisk()
    if not disk.is_directory(file.absolute().parent):
        raise NotFound(f"there is no directory {file.absolute().parent}")
    unfinished = file.absolute().with_name(f".{file.name}.{os.getpid()}")
    try:
        with translated():
            writer = frame.coalesce(1).write.mode("overwrite").format(form)
            (writer.option("header", True) if form == "csv" else writer).save(str(unfinished))
        parts = [name for name in disk.names(unfinished) if name.startswith("part-")]
        assert len(parts) == 1, f"Spark wrote {parts} for one partition"
        disk.rename(unfinished / parts[0], file)
        disk.sync_directory(file.absolute().parent)
    finally:
        remove_tree(disk, unfinished)
