"""`quiver pipeline archive`, `compact`, `audit` and `report`: looking after whole topics."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from quivermq.cli.command import answering
from quivermq.cli.durations import parse_moment, parse_seconds
from quivermq.cli.options import DataOption, DryRunOption, MasterOption, ServerOption, TopicsOption
from quivermq.cli.output import CommandResult, TextTable, counted, offsets_text, size_text
from quivermq.cli.pipeline.job import spark_job
from quivermq.errors import Conflict, Corruption
from quivermq.settings import place_of
from quivermq.settings.setting import MIB
from quivermq.shared.beside import stored_root

if TYPE_CHECKING:
    from quivermq.spark.jobs.archive import ArchiveSummary
    from quivermq.spark.jobs.audit import AuditSummary
    from quivermq.spark.jobs.audit_tasks import AuditFinding


@answering
def archive(
    to: Annotated[
        str | None,
        Option(help="The directory; otherwise the one there is, or `archive` inside of --data."),
    ] = None,
    topics: TopicsOption = None,
    age: Annotated[str, Option(help="Messages so old are archived, however few there are.")] = "10m",
    file_mib: Annotated[int, Option(help="So many MiB are archived, however young they are.", min=1)] = 128,
    free: Annotated[
        bool, Option("--free", help="Then remove from the logs what is archived and done with.")
    ] = False,
    rewrite: Annotated[
        bool, Option("--rewrite/--no-rewrite", help="Make larger files of many small ones.")
    ] = True,
    dry_run: DryRunOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
) -> CommandResult:
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
    return archive_result(summary)


def archive_result(summary: "ArchiveSummary") -> CommandResult:
    """A line for each topic, and one on the whole."""
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
    parts: list[str | TextTable] = []
    if rows:
        parts.append(TextTable(("topic", "messages", "files", "size", "merged", "waiting", "lost"), rows))
    done = "would be archived" if summary.is_dry_run else f"archived in {summary.seconds:.1f} s"
    parts.append(f"{counted(summary.messages, 'message')} {done}: {summary.directory}")
    if summary.freed_segments:
        parts.append(
            f"freed {counted(summary.freed_segments, 'segment')}, {size_text(summary.freed_bytes)}"
        )
    notes = list(summary.problems)
    if not (summary.is_served or summary.is_dry_run):
        notes.insert(0, "the broker does not know of the archive, and does not read on there")
    failure = None
    if summary.problems:
        is_damaged = any(each.is_damaged for each in summary.topics)
        failure = typer.Exit(Corruption.exit_code if is_damaged else Conflict.exit_code)
    return CommandResult(asdict(summary), *parts, notes=notes, failure=failure)


@answering
def compact(
    topics: Annotated[
        list[str] | None,
        Argument(help="Topics by name or pattern. Otherwise all that have cleanup=compact."),
    ] = None,
    tombstone_age: Annotated[
        str, Option(help="How old a message without a value gets before it goes, too.")
    ] = "24h",
    min_dirty_ratio: Annotated[
        float,
        Option(
            help="Leave segments alone of which a smaller share of the messages would go.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
) -> CommandResult:
    """Let only the latest message of each key stay, in topics that have cleanup=compact.

    Each partition and priority is compacted by itself. A message with a key and an empty value removes what
    its key had. A broker serves on meanwhile: give its `--server`. A directory must not be open elsewhere.
    """
    age_ms = int(parse_seconds(tombstone_age) * 1000)
    with spark_job(data, server, master) as job:
        from quivermq.spark import compact

        done = compact(
            **job.arguments,
            topics=topics or None,
            tombstone_age_ms=age_ms,
            min_dirty_ratio=min_dirty_ratio,
            dry_run=dry_run,
        )
    columns = ("topic", "segments", "replaced", "messages", "left", "size", "left")
    rows = [
        (
            each.topic,
            f"{each.segments:,}",
            f"{each.replaced:,}",
            f"{each.messages_before:,}",
            f"{each.messages_after:,}",
            size_text(each.bytes_before),
            size_text(each.bytes_after),
        )
        for each in done.topics
    ]
    notes: list[str] = []
    if busy := sum(each.busy for each in done.topics):
        notes.append(f"{busy} segments were changed by somebody else meanwhile: the next run compacts them")
    if not done.topics:
        notes.append(
            "no topic has cleanup=compact: `quiver topic alter TOPIC --set cleanup=compact` makes it one"
        )
    return CommandResult(asdict(done), TextTable(columns, rows), notes=notes)


@answering
def audit(
    topics: TopicsOption = None,
    deep: Annotated[
        bool, Option("--deep", help="Check the inside of every frame, too, which its sum answers for.")
    ] = False,
    ignore: Annotated[
        list[str] | None, Option(help="A kind of finding to leave out; again for more.")
    ] = None,
    dry_run: DryRunOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
) -> CommandResult:
    """Check checksums, offsets, order and that nothing is there twice, over a whole store in parallel.

    Changes nothing, and may run beside a writer. Exits with 0 when nothing is wrong, otherwise with 6. A
    warning, such as a torn tail or a clock that was set back, is told and changes nothing about that.
    """
    with spark_job(data, server, master) as job:
        from quivermq.spark.jobs.audit import audit

        summary = audit(**job.arguments, topics=topics, deep=deep, ignore=ignore or (), dry_run=dry_run)
    findings = [{**asdict(each), "severity": each.severity} for each in summary.findings]
    return CommandResult(
        {**asdict(summary), "is_sound": summary.is_sound, "findings": findings},
        *_audit_parts(summary, data),
        failure=None if summary.is_sound else typer.Exit(Corruption.exit_code),
    )


def _audit_parts(summary: "AuditSummary", data: str | None) -> Iterator[str | TextTable]:
    """The findings as a table, and one line on the whole."""
    if summary.findings:
        columns = ("severity", "kind", "where", "byte", "offsets", "reason")
        yield TextTable(columns, [_finding_row(each, data) for each in summary.findings])
    parts = [counted(summary.logs, "log"), counted(summary.segments, "segment"), size_text(summary.bytes)]
    if summary.is_dry_run:
        yield f"there are {', '.join(parts)} to look at"
        return
    parts[2:2] = [counted(summary.frames, "frame"), counted(summary.messages, "message")]
    errors = sum(each.severity == "error" for each in summary.findings)
    state = "sound" if summary.is_sound else f"{counted(errors, 'error').upper()}"
    yield f"{', '.join(parts)} in {summary.seconds:.1f} s: {state}"
    if summary.late_frames:
        yield f"{counted(summary.late_frames, 'frame')} with messages older than earlier ones: allowed"


def _root_of(data: str | None) -> str:
    """What all files of a queue begin with; those of a bucket have paths that no machine has."""
    if data is None:
        return ""
    place = place_of(data)
    return f"{place.absolute() if isinstance(place, Path) else stored_root(place)}/"


def _finding_row(finding: "AuditFinding", data: str | None) -> tuple[object, ...]:
    root = _root_of(data)
    return (
        finding.severity,
        finding.kind,
        finding.where.removeprefix(root),
        "" if finding.position is None else finding.position,
        offsets_text(finding.offsets),
        finding.reason,
    )


@answering
def report(
    to: Annotated[Path, Option(help="The file to write.")] = Path("report.html"),
    since: Annotated[str | None, Option(help="Leave out what came in before this time.")] = None,
    until: Annotated[str | None, Option(help="Leave out what came in at this time or later.")] = None,
    topics: TopicsOption = None,
    dry_run: DryRunOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
) -> CommandResult:
    """Write a page with plots: throughput, latency, failures, lag, sizes, hot keys and storage.

    The page is one file that loads nothing from anywhere. How long messages took from publish to ack comes
    from the journals of the groups, which only a directory has.
    """
    moments = [None if text is None else parse_moment(text) for text in (since, until)]
    from quivermq.spark.jobs.sql import check_parent

    with spark_job(data, server, master, check=partial(check_parent, to)) as job:
        from quivermq.spark.jobs.report import report

        summary = report(
            **job.arguments, to=to, since=moments[0], until=moments[1], topics=topics, dry_run=dry_run
        )
    parts = [counted(summary.topics, "topic"), counted(summary.groups, "group"), size_text(summary.bytes)]
    if summary.is_dry_run:
        return CommandResult(asdict(summary), f"there are {', '.join(parts)} to report on")
    parts.insert(2, counted(summary.messages, "message"))
    lines = [f"wrote {summary.to}: {', '.join(parts)} in {summary.seconds:.1f} s"]
    if summary.unreadable:
        lines.append(f"{counted(summary.unreadable, 'part')} could not be read: the page says which")
    return CommandResult(asdict(summary), *lines)
