"""`quiver pipeline run`: a pipeline that a file declares."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quivermq.cli.output import JsonOption, print_json, print_table
from quivermq.cli.pipeline.job import DryRunOption, MasterOption, print_summary, spark_job
from quivermq.cli.place import DATA_VARIABLE, SERVER_VARIABLE, DataOption, ServerOption
from quivermq.errors import InvalidRequest

if TYPE_CHECKING:
    from quivermq.spark.jobs.state import Standing


def command(
    file: Annotated[Path, typer.Argument(help="The file that declares the pipeline, in TOML.")],
    once: Annotated[
        bool, typer.Option("--once", help="End when everything that is there is through.")
    ] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Go on until somebody ends it.")] = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline: topics in, SQL or Python in between, topics and Parquet files out.

    docs/guides/pipelines.md says what the file contains. Every message has its effect once, also when the
    command is killed and given again. With `--dry-run`, checks everything and shows the tables.
    """
    if once and continuous:
        raise InvalidRequest("give --once or --continuous, not both")
    mode = "once" if once else "continuous" if continuous else None
    data, server = _place_of_file(file, data, server)
    with (
        spark_job(data, server, master, shows_progress=False) as job,
        _until_asked() as stop,
        _display() as told,
    ):
        from quivermq.spark import run

        done = run(file, **job.where, spark=job.spark, mode=mode, dry_run=dry_run, told=told, stop=stop)
    if as_json:
        print_json(asdict(done))
        return
    if dry_run:
        print_table(("table", "columns"), list(done.tables.items()))
    sinks = [(sink.name, sink.target, f"{sink.read:,}", f"{sink.written:,}") for sink in done.sinks]
    print_table(("sink", "goes to", "messages read", "rows written"), sinks)
    print_summary({"pipeline": done.name, "mode": done.mode, "checkpoint": done.checkpoint})


def _place_of_file(file: Path, data: Path | None, server: str | None) -> tuple[Path | None, str | None]:
    """What the options say or, when they say nothing, the file; the environment comes last."""
    from quivermq.spark.jobs.run_file import load_pipeline

    pipeline = load_pipeline(file)
    given = data, server, os.environ.get(DATA_VARIABLE), os.environ.get(SERVER_VARIABLE)
    if any(given):
        return data, server
    return (None if pipeline.data is None else pipeline.beside(pipeline.data)), pipeline.server


@contextmanager
def _until_asked() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set: the pipeline then ends as it should, with exit code 0."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
