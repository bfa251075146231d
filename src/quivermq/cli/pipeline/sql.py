"""`quiver pipeline sql`: one statement, in which topics are tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quivermq.cli.output import JsonOption, print_json, print_line_of_json, say
from quivermq.cli.pipeline.job import MasterOption, spark_job
from quivermq.cli.pipeline.rows import as_json as value_as_json
from quivermq.cli.pipeline.rows import print_rows
from quivermq.cli.place import DataOption, ServerOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = 100


def command(
    statement: Annotated[str, typer.Argument(help="Such as SELECT count(*) FROM orders.")],
    limit: Annotated[
        int | None,
        typer.Option("--limit", help=f"How many rows at most. A table has {_ROWS} without it.", min=1),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Write to this file: .parquet, .csv, or .json with a row a line."),
    ] = None,
    binary: Annotated[
        bool, typer.Option("--binary", help="Keys and values are bytes, and not text.")
    ] = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a question in SQL, in which every topic is a table.

    A topic has the columns key, value, topic, partition, priority, offset, timestamp, headers and
    expires_at. quiver_groups, quiver_deliveries, quiver_dead_letters and quiver_segments are the state of
    the queue. A name with dots or dashes stands in backticks. With `--json`, each row is a line. In
    Parquet, keys and values are binary unless the statement makes something else of them.
    """
    with spark_job(data, server, master, check=lambda: _check(statement, to)) as job:
        from quivermq.spark import sql
        from quivermq.spark.execution import watched
        from quivermq.spark.jobs.sql import check_names, write_file

        frame = sql(statement, **job.where, spark=job.spark, binary=binary)
        if limit is not None:
            frame = frame.limit(limit)
        with watched(job.spark, job.progress, "reading"):
            if to is not None:
                write_file(frame, to)
            elif as_json:
                check_names(frame.columns)
                _print_lines(frame)
            else:
                rows = frame.take(_ROWS + 1 if limit is None else limit)
    # Behind the end of the progress display, which would be in the way of a table.
    if to is not None:
        print_json({"file": str(to)}) if as_json else say(f"wrote {to}")
    elif not as_json:
        print_rows(frame.columns, rows[: limit or _ROWS])
        if limit is None and len(rows) > _ROWS:
            say(f"these are the first {_ROWS} rows: --limit shows more, --json and --to give all")


def _check(statement: str, to: Path | None) -> None:
    from quivermq.spark.jobs.sql import check_is_query, check_parent, file_format

    check_is_query(statement)
    if to is not None:
        file_format(to)
        check_parent(to)


def _print_lines(frame: "DataFrame") -> None:
    # One partition after the other, so that an answer may be larger than the memory.
    for row in frame.toLocalIterator(prefetchPartitions=True):
        print_line_of_json(value_as_json(row.asDict()))
