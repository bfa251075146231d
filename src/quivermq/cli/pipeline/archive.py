"""`quiver pipeline archive`: messages to Parquet files, which are read as if they were in the log."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from quivermq.cli.durations import parse_seconds
from quivermq.cli.output import JsonOption, counted, print_json, print_table, say, size_text
from quivermq.cli.pipeline.job import DryRunOption, MasterOption, spark_job
from quivermq.cli.place import DataOption, ServerOption
from quivermq.errors import Conflict, Corruption
from quivermq.settings.setting import MIB

if TYPE_CHECKING:
    from quivermq.spark.jobs.archive import ArchiveSummary


def command(
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="The directory; otherwise the one there is, or `archive` inside of --data."
        ),
    ] = None,
    topics: Annotated[
        str | None, typer.Option("--topics", help="Names and patterns, separated by commas; otherwise all.")
    ] = None,
    age: Annotated[
        str, typer.Option("--age", help="Messages so old are archived, however few there are.")
    ] = "10m",
    file_mib: Annotated[
        int, typer.Option("--file-mib", help="So many MiB are archived, however young they are.", min=1)
    ] = 128,
    free: Annotated[
        bool,
        typer.Option("--free", help="Then remove from the logs what is archived and done with."),
    ] = False,
    rewrite: Annotated[
        bool, typer.Option("--rewrite/--no-rewrite", help="Make larger files of many small ones.")
    ] = True,
    dry_run: DryRunOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write messages to Parquet files by topic and day, each once, and go on where the last run ended.

    What is archived is read by `quiver read` and by Spark as if it were in the log, and retention leaves
    what is not. Any other program can read the files as they are. A topic that cannot be archived is told,
    the others are archived, and the exit code is 6 for damage and otherwise 4.
    """
    seconds = parse_seconds(age)
    with spark_job(data, server, master) as job:
        from quivermq.spark import archive

        summary = archive(
            **job.arguments,
            to=to,
            topics=topics,
            age=seconds,
            file_bytes=file_mib * MIB,
            free=free,
            rewrite=rewrite,
            dry_run=dry_run,
        )
    if as_json:
        print_json(asdict(summary))
    else:
        print_archive(summary)
    if summary.problems:
        is_damaged = any(each.is_damaged for each in summary.topics)
        raise typer.Exit(Corruption.exit_code if is_damaged else Conflict.exit_code)


def print_archive(summary: "ArchiveSummary") -> None:
    """A line for each topic, and one on the whole."""
    columns = ("topic", "messages", "files", "size", "merged", "waiting", "lost")
    rows = [
        (
            each.topic,
            f"{each.messages:,}",
            f"{each.files:,}",
            size_text(each.bytes),
            f"{each.merged:,}",
            f"{each.waiting:,}",
            f"{each.lost:,}",
        )
        for each in summary.topics
    ]
    if rows:
        print_table(columns, rows)
    done = "would be archived" if summary.is_dry_run else f"archived in {summary.seconds:.1f} s"
    print(f"{counted(summary.messages, 'message')} {done}: {summary.directory}")
    if summary.freed_segments:
        print(f"freed {counted(summary.freed_segments, 'segment')}, {size_text(summary.freed_bytes)}")
    if not (summary.is_served or summary.is_dry_run):
        say("the broker does not know of the archive, and does not read on there")
    for problem in summary.problems:
        say(problem)
