"""`quiver export`: a range of a topic as NDJSON, Arrow IPC or Parquet."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quivermq.cli.durations import parse_moment
from quivermq.cli.output import JsonOption, counted, print_json, print_table, say, size_text
from quivermq.cli.pipeline.job import check_broker
from quivermq.cli.place import (
    KEY_VARIABLE,
    DataOption,
    ServerOption,
    TopicArgument,
    check_directory,
    find_place,
)
from quivermq.errors import Conflict, InvalidRequest

if TYPE_CHECKING:
    from quivermq.exporting import ExportSummary
    from quivermq.spark.execution import Progress

_STDOUT = "-"
_OFFSET = re.compile(r"[0-9]{1,19}")
_BOUND = "an offset, or a moment such as 2026-01-31T12:00:00Z"


def command(
    topic: TopicArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write; `-` is standard output.")
    ] = _STDOUT,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="`ndjson`, `arrow` or `parquet`. Otherwise what the name of the file says, or ndjson.",
        ),
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help=f"Where to begin: {_BOUND}.")] = None,
    end: Annotated[str | None, typer.Option("--to", help=f"Where to end, without it: {_BOUND}.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", help="Only this partition.", min=0)
    ] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", help="Only this priority: high, normal or low.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Only what is in the log, and not what is archived.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the messages of a topic to a file, or a part of them. Nothing is consumed.

    A directory may be in use meanwhile; what comes in after the beginning is not exported. The file is
    there once all of it is. NDJSON is what `quiver put --ndjson` takes; Arrow and Parquet need pyarrow,
    which comes with `quivermq[spark]`.
    """
    if output == _STDOUT:
        _check_stdout(format_name, as_json=as_json)
    place = find_place(data, server)
    key = None
    if place.data is not None:
        check_directory(place.data)
    elif place.server is not None:
        key = os.environ.get(KEY_VARIABLE) or None
        check_broker(place.server, key)
    bounds = _bound("--from", start), _bound("--to", end)

    from quivermq.exporting import export

    with _progress() as progress:
        try:
            summary = export(
                topic,
                sys.stdout.buffer if output == _STDOUT else Path(output),
                path=place.data,
                server=place.server,
                key=key,
                start=bounds[0],
                end=bounds[1],
                partition=partition,
                priority=priority,
                format=format_name,
                archive=not live,
                overwrite=force,
                progress=progress,
            )
        except Conflict as error:
            error.args = (str(error).replace("allow to overwrite it", "--force overwrites it"),)
            raise
    _tell(summary, as_json=as_json)


def _check_stdout(format_name: str | None, *, as_json: bool) -> None:
    if as_json:
        raise InvalidRequest(
            "--json is about the summary, and standard output has the messages: say -o FILE"
        )
    if format_name not in (None, "ndjson") and sys.stdout.isatty():
        raise InvalidRequest(
            f"{format_name} is nothing for a terminal: say -o FILE, or send it into a pipe"
        )


def _bound(option: str, text: str | None) -> int | datetime | None:
    """Digits alone are an offset: a moment always has signs between them."""
    if text is None:
        return None
    if _OFFSET.fullmatch(text):
        return int(text)
    try:
        return parse_moment(text)
    except InvalidRequest:
        raise InvalidRequest(f"{option} is {_BOUND}, not {text!r:.80}") from None


def _tell(summary: "ExportSummary", *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(summary))
        return
    done = (
        f"exported {counted(summary.messages, 'message')} of {summary.topic} as {summary.format},"
        f" {size_text(summary.bytes)}, in {summary.seconds:.1f} s"
    )
    if summary.output is None:
        say(done)
        return
    rows = [
        (str(lane.partition), lane.priority, str(lane.start), str(lane.end), f"{lane.messages:,}")
        for lane in summary.lanes
    ]
    print_table(("partition", "priority", "from", "to", "messages"), rows)
    print(f"{done}: {summary.output}")


@contextmanager
def _progress() -> "Iterator[Progress | None]":
    """A bar over messages on the error stream, at a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("export", total=None)

        def show(description: str, done: float, total: float | None = None) -> None:
            bar.update(task, description=description, completed=done, total=total)

        yield show
