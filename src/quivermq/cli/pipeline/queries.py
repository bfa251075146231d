"""`quiver pipeline sql` and `run`: one statement in which topics are tables, and a pipeline of a file."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import DATA_VARIABLE, SERVER_VARIABLE, Place
from quivermq.cli.options import DataOption, DryRunOption, JsonOption, MasterOption, ServerOption
from quivermq.cli.output import CommandResult, TextTable, print_json, print_line_of_json, say
from quivermq.cli.pipeline.job import spark_job, summary_table
from quivermq.cli.pipeline.rows import as_json as value_as_json
from quivermq.cli.pipeline.rows import table_of
from quivermq.cli.stopping import handling
from quivermq.errors import InvalidRequest

if TYPE_CHECKING:
    from quivermq.spark.jobs.state import Standing

_ROWS = 100


def sql(
    statement: Annotated[str, Argument(help="Such as SELECT count(*) FROM orders.")],
    limit: Annotated[
        int | None, Option(help=f"How many rows at most. A table has {_ROWS} without it.", min=1)
    ] = None,
    to: Annotated[
        Path | None, Option(help="Write to this file: .parquet, .csv, or .json with a row a line.")
    ] = None,
    binary: Annotated[bool, Option("--binary", help="Keys and values are bytes, and not text.")] = False,
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
                # One partition after the other, so that an answer may be larger than the memory.
                for row in frame.toLocalIterator(prefetchPartitions=True):
                    print_line_of_json(value_as_json(row.asDict()))
            else:
                rows = frame.take(_ROWS + 1 if limit is None else limit)
    # Behind the end of the progress display, which would be in the way of a table.
    if to is not None:
        print_json({"file": str(to)}) if as_json else say(f"wrote {to}")
    elif not as_json:
        table_of(frame.columns, rows[: limit or _ROWS]).print()
        if limit is None and len(rows) > _ROWS:
            say(f"these are the first {_ROWS} rows: --limit shows more, --json and --to give all")


def _check(statement: str, to: Path | None) -> None:
    from quivermq.spark.jobs.sql import check_is_query, check_parent, file_format

    check_is_query(statement)
    if to is not None:
        file_format(to)
        check_parent(to)


@answering
def run(
    file: Annotated[Path, Argument(help="The file that declares the pipeline, in TOML.")],
    once: Annotated[bool, Option("--once", help="End when everything that is there is through.")] = False,
    continuous: Annotated[bool, Option("--continuous", help="Go on until somebody ends it.")] = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
) -> CommandResult:
    """Run a pipeline: topics in, SQL or Python in between, topics and Parquet files out.

    docs/guides/pipelines.md says what the file contains. Every message has its effect once, also when the
    command is killed and given again. With `--dry-run`, checks everything and shows the tables.
    """
    if once and continuous:
        raise InvalidRequest("give --once or --continuous, not both")
    mode = "once" if once else "continuous" if continuous else None
    place, server = _location_of_file(file, data, server)
    stop = threading.Event()
    with (
        spark_job(place, server, master, shows_progress=False) as job,
        # Ctrl-C and SIGTERM let the pipeline end as it should, with exit code 0.
        handling(("SIGINT", "SIGTERM"), lambda *_: stop.set()),
        _display() as show,
    ):
        from quivermq.spark import run

        done = run(file, **job.where, spark=job.spark, mode=mode, dry_run=dry_run, told=show, stop=stop)
    sinks = [(sink.name, sink.target, f"{sink.read:,}", f"{sink.written:,}") for sink in done.sinks]
    return CommandResult(
        asdict(done),
        *([TextTable(("table", "columns"), list(done.tables.items()))] if dry_run else []),
        TextTable(("sink", "goes to", "messages read", "rows written"), sinks),
        summary_table({"pipeline": done.name, "mode": done.mode, "checkpoint": done.checkpoint}),
    )


def _location_of_file(
    file: Path, data: Place | None, server: str | None
) -> tuple[Place | None, str | None]:
    """What the options say or, when they say nothing, the file; the environment comes last."""
    from quivermq.spark.jobs.run_file import load_pipeline

    pipeline = load_pipeline(file)
    given = data, server, os.environ.get(DATA_VARIABLE), os.environ.get(SERVER_VARIABLE)
    if any(given):
        return data, server
    return (None if pipeline.data is None else pipeline.beside(pipeline.data)), pipeline.server


@contextmanager
def _display() -> "Iterator[Callable[[Mapping[str, Standing]], None] | None]":
    """A table that stays in its place and shows how far each sink is; only at a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    def table(standings: "Mapping[str, Standing]") -> Any:
        shown = Table("sink", "messages", "messages/s", "lag")
        for name, at in standings.items():
            lag = "-" if at.lag is None else f"{at.lag:,}"
            shown.add_row(name, f"{at.rows:,}", f"{at.rows_per_second:,.0f}", lag)
        return shown

    with Live(table({}), console=Console(stderr=True), transient=True) as live:
        yield lambda standings: live.update(table(standings))
