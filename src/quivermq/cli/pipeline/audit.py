"""`quiver pipeline audit`: check a whole store in parallel, and tell what is wrong with it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quivermq.cli.output import JsonOption, counted, print_json, print_table, size_text
from quivermq.cli.pipeline.job import DryRunOption, MasterOption, spark_job
from quivermq.cli.place import DataOption, ServerOption
from quivermq.errors import Corruption

if TYPE_CHECKING:
    from quivermq.spark.jobs.audit import AuditSummary
    from quivermq.spark.jobs.audit_tasks import AuditFinding


def command(
    topics: Annotated[
        str | None, typer.Option("--topics", help="Names and patterns, separated by commas; otherwise all.")
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Check the inside of every frame, too, which its sum answers for."),
    ] = False,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", help="A kind of finding to leave out; again for more.")
    ] = None,
    dry_run: DryRunOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check checksums, offsets, order and that nothing is there twice, over a whole store in parallel.

    Changes nothing, and may run beside a writer. Exits with 0 when nothing is wrong, otherwise with 6. A
    warning, such as a torn tail or a clock that was set back, is told and changes nothing about that.
    """
    with spark_job(data, server, master) as job:
        from quivermq.spark.jobs.audit import audit

        summary = audit(**job.arguments, topics=topics, deep=deep, ignore=ignore or (), dry_run=dry_run)
    if as_json:
        print_json(summary_as_json(summary))
    else:
        print_audit(summary, data)
    if not summary.is_sound:
        raise typer.Exit(Corruption.exit_code)


def summary_as_json(summary: "AuditSummary") -> dict[str, Any]:
    """The summary as programs read it."""
    findings = [{**asdict(each), "severity": each.severity} for each in summary.findings]
    return {**asdict(summary), "is_sound": summary.is_sound, "findings": findings}


def print_audit(summary: "AuditSummary", data: Path | None) -> None:
    """The findings as a table, and one line on the whole."""
    if summary.findings:
        columns = ("severity", "kind", "where", "byte", "offsets", "reason")
        print_table(columns, [_row(each, data) for each in summary.findings])
    parts = [counted(summary.logs, "log"), counted(summary.segments, "segment"), size_text(summary.bytes)]
    if summary.is_dry_run:
        print(f"there are {', '.join(parts)} to look at")
        return
    parts[2:2] = [counted(summary.frames, "frame"), counted(summary.messages, "message")]
    errors = sum(each.severity == "error" for each in summary.findings)
    state = "sound" if summary.is_sound else f"{counted(errors, 'error').upper()}"
    print(f"{', '.join(parts)} in {summary.seconds:.1f} s: {state}")
    if summary.late_frames:
        print(f"{counted(summary.late_frames, 'frame')} with messages older than earlier ones: allowed")


def _row(finding: "AuditFinding", data: Path | None) -> tuple[str, ...]:
    start, end = finding.offsets
    root = "" if data is None else f"{data.absolute()}/"
    return (
        finding.severity,
        finding.kind,
        finding.where.removeprefix(root),
        "" if finding.position is None else str(finding.position),
        f"[{start}, {'?' if end is None else end})",
        finding.reason,
    )
