"""A program that has Spark do some work, in a process of its own, and may be killed.

`python -m support.spark_program '{"master": …, "conf": …, "work": [[name, arguments], …]}'`

With a master that is the address of a server of Spark Connect it is a client, and has no Java of its own.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa

from support.spark_classes import FEW_ROWS
from support.spark_deaths import note_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(given: dict[str, Any]) -> None:
    note_process(os.getpid())
    spark = None if given["master"] is None else start(given["master"], given["conf"])
    for name, arguments in given["work"]:
        _WORK[name](spark, **arguments)
    if spark is not None:
        spark.stop()


def start(master: str, conf: dict[str, str]) -> "SparkSession":
    from quivermq.spark import session

    if master.startswith("sc://"):
        return session(master)
    spark = session(master, app="program", **FEW_ROWS | conf)
    # It has a group of its own.
    note_process(type(spark.sparkContext)._gateway.proc.pid)  # type: ignore[union-attr]
    return spark


def archive(spark: "SparkSession | None", **arguments: Any) -> None:
    from quivermq import spark as jobs

    assert jobs.archive(**arguments, spark=spark).problems == ()


def quiver(_: "SparkSession", *, words: list[str]) -> None:
    """The command line, which takes the session that is there."""
    from quivermq.cli import main

    with patch.object(sys, "argv", ["quiver", *words]):
        assert main() == 0


def write_stream(
    spark: "SparkSession",
    *,
    source: dict[str, str],
    sink: dict[str, str],
    checkpoint: str,
    fails_once: str | None = None,
) -> None:
    """Messages of a queue, or the lines of the text files in `input`, into a topic."""
    if "input" in source:
        rows = spark.readStream.option("maxFilesPerTrigger", source["files"]).text(source["input"])
        rows = rows.selectExpr("value", "value AS key")
    else:
        rows = spark.readStream.format("quiver").options(**source).load().select("key", "value")
    if fails_once is not None:
        rows = rows.mapInArrow(lambda batches: failing(batches, Path(fails_once)), rows.schema)
    writer = rows.writeStream.format("quiver").options(**sink).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def failing(batches: Iterator[pa.RecordBatch], marker: Path) -> Iterator[pa.RecordBatch]:
    """Rows one by one, and an error in the middle the first time; then from the last to the first."""
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    is_first = not marker.exists()
    marker.touch()
    for batch in whole:
        order = range(len(batch)) if is_first else range(len(batch) - 1, -1, -1)
        for count, row in enumerate(order):
            if is_first and count > len(batch) * 2 // 3:
                raise RuntimeError("this task fails the first time")
            yield batch.slice(row, 1)


def try_everything(spark: "SparkSession", *, directory: str) -> None:
    """A little of all that programs of tests do, for the sake of the classes that it takes."""
    lines, data = Path(directory) / "lines", {"path": f"{directory}/data", "topic": "out"}
    lines.mkdir()
    (lines / "0.txt").write_text("a\nb\n")
    write_stream(
        spark,
        source={"input": str(lines), "files": "1"},
        sink=data,
        checkpoint=f"{directory}/checkpoint",
    )
    read = spark.readStream.format("quiver").options(path=data["path"], subscribe="out").load()
    table = read.writeStream.format("parquet").option("checkpointLocation", f"{directory}/other")
    table.trigger(availableNow=True).start(f"{directory}/table").awaitTermination()
    letters = spark.read.format("quiver").options(path=data["path"], table="dead_letters").load()
    assert letters.select("topic", "offset").distinct().orderBy("offset").collect() == []
    archive(spark, path=data["path"], age=0)


_WORK: dict[str, Callable[..., None]] = {
    "archive": archive,
    "quiver": quiver,
    "try_everything": try_everything,
    "write_stream": write_stream,
}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
