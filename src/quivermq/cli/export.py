"""`quiver export`: a range of a topic as NDJSON, Arrow IPC or Parquet."""

import re
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

from typer import Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import check_broker, find_location
from quivermq.cli.durations import parse_moment
from quivermq.cli.options import DataOption, ServerOption, TopicArgument
from quivermq.cli.output import CommandResult, TextTable, counted, size_text
from quivermq.cli.progress import progress_display
from quivermq.errors import Conflict, InvalidRequest

_STDOUT = "-"
_OFFSET = re.compile(r"[0-9]{1,19}")
_BOUND = "an offset, or a moment such as 2026-01-31T12:00:00Z"


@answering
def command(
    topic: TopicArgument,
    output: Annotated[
        str, Option("--output", "-o", help="The file to write; `-` is standard output.")
    ] = _STDOUT,
    format_name: Annotated[
        str | None,
        Option(
            "--format",
            help="`ndjson`, `arrow` or `parquet`. Otherwise what the name of the file says, or ndjson.",
        ),
    ] = None,
    start: Annotated[str | None, Option("--from", help=f"Where to begin: {_BOUND}.")] = None,
    end: Annotated[str | None, Option("--to", help=f"Where to end, without it: {_BOUND}.")] = None,
    partition: Annotated[int | None, Option(help="Only this partition.", min=0)] = None,
    priority: Annotated[str | None, Option(help="Only this priority: high, normal or low.")] = None,
    live: Annotated[
        bool, Option("--live", help="Only what is in the log, and not what is archived.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Overwrite a file that is there.")] = False,
    data: DataOption = None,
    server: ServerOption = None,
    *,
    as_json: bool,
) -> CommandResult:
    """Write the messages of a topic to a file, or a part of them. Nothing is consumed.

    A directory may be in use meanwhile; what comes in after the beginning is not exported. The file is
    there once all of it is. NDJSON is what `quiver put --ndjson` takes; Arrow and Parquet need pyarrow,
    which comes with `quivermq[spark]`.
    """
    if output == _STDOUT:
        _check_stdout(format_name, as_json=as_json)
    where = find_location(data, server).arguments()
    if "server" in where:
        check_broker(**where)
    bounds = _bound("--from", start), _bound("--to", end)

    from quivermq.exporting import export

    columns = ("{task.description}", "BarColumn", "MofNCompleteColumn", "TimeRemainingColumn")
    with progress_display(*columns) as progress:
        try:
            summary = export(
                topic,
                sys.stdout.buffer if output == _STDOUT else Path(output),
                **where,
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
    done = (
        f"exported {counted(summary.messages, 'message')} of {summary.topic} as {summary.format},"
        f" {size_text(summary.bytes)}, in {summary.seconds:.1f} s"
    )
    if summary.output is None:
        return CommandResult(asdict(summary), notes=[done])
    rows = [
        (lane.partition, lane.priority, lane.start, lane.end, f"{lane.messages:,}")
        for lane in summary.lanes
    ]
    table = TextTable(("partition", "priority", "from", "to", "messages"), rows)
    return CommandResult(asdict(summary), table, f"{done}: {summary.output}")


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
