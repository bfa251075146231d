"""`quiver pipeline report`: a page about a queue, with plots."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from quivermq.cli.durations import parse_moment
from quivermq.cli.output import JsonOption, counted, print_json, size_text
from quivermq.cli.pipeline.job import DryRunOption, MasterOption, spark_job
from quivermq.cli.place import DataOption, ServerOption


def command(
    to: Annotated[Path, typer.Option("--to", help="The file to write.")] = Path("report.html"),
    since: Annotated[
        str | None, typer.Option("--since", help="Leave out what came in before this time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Leave out what came in at this time or later.")
    ] = None,
    topics: Annotated[
        str | None, typer.Option("--topics", help="Names and patterns, separated by commas; otherwise all.")
    ] = None,
    dry_run: DryRunOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page with plots: throughput, latency, failures, lag, sizes, hot keys and storage.

    The page is one file that loads nothing from anywhere. How long messages took from publish to ack comes
    from the journals of the groups, which only a directory has.
    """
    moments = [None if text is None else parse_moment(text) for text in (since, until)]
    with spark_job(data, server, master, check=partial(_check_file, to)) as job:
        from quivermq.spark.jobs.report import report

        summary = report(
            **job.arguments, to=to, since=moments[0], until=moments[1], topics=topics, dry_run=dry_run
        )
    if as_json:
        print_json(asdict(summary))
        return
    parts = [counted(summary.topics, "topic"), counted(summary.groups, "group"), size_text(summary.bytes)]
    if summary.is_dry_run:
        print(f"there are {', '.join(parts)} to report on")
        return
    parts.insert(2, counted(summary.messages, "message"))
    print(f"wrote {summary.to}: {', '.join(parts)} in {summary.seconds:.1f} s")
    if summary.unreadable:
        print(f"{counted(summary.unreadable, 'part')} could not be read: the page says which")


def _check_file(file: Path) -> None:
    from quivermq.spark.jobs.sql import check_parent

    check_parent(file)
