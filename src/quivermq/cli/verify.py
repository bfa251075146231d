"""`quiver verify` and `quiver repair`: check every byte of a data directory, and mend what is damaged."""

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import DATA_VARIABLE, QueueLocation, find_location
from quivermq.cli.options import DataOption, ServerOption, YesOption
from quivermq.cli.output import CommandResult, TextTable, confirm, counted, offsets_text
from quivermq.cli.progress import progress_bar, progress_bytes
from quivermq.errors import Corruption
from quivermq.log import Repair, Report, repair, total_bytes
from quivermq.model.stats_json import relative_path, report_json


@answering
def verify_queue(data: DataOption = None, server: ServerOption = None) -> CommandResult:
    """Check every byte of every log. Changes nothing; may run beside a writer.

    Exits with 0 when every message that should be there is there, otherwise with 6. A torn tail, an
    index that does not fit and a gap that an earlier repair left are told, but lose nothing that is not
    lost already.
    """
    report = _verified(find_location(data, server))
    failure = None if report.is_sound else typer.Exit(Corruption.exit_code)
    return CommandResult(report_json(report, Path()), *_report_parts(report), failure=failure)


@answering
def repair_directory(
    data: Annotated[
        Path,
        Option(
            "--data",
            envvar=DATA_VARIABLE,
            show_envvar=False,
            help=f"The data directory. Or set `{DATA_VARIABLE}`.",
        ),
    ],
    yes: YesOption = False,
    *,
    as_json: bool,
) -> CommandResult:
    """Mend every log below a directory that nobody has open. Nothing is thrown away.

    Damaged bytes are copied into side files in `@quarantine` beside the log; their offsets stay, as
    gaps. Torn tails are treated likewise, and indexes that do not fit are made anew.
    """
    found = _verified(QueueLocation(data))
    if not as_json:
        # Before the question about it.
        CommandResult(None, *_report_parts(found)).print(as_json=False)
    if any(finding.kind != "gap" for finding in found.findings):
        confirm("Set the damaged bytes aside and mend the logs?", yes=yes, as_json=as_json)
    with progress_bar("repairing", lambda: total_bytes(data)) as advance:
        done = repair(data, progress=advance)
    rows = [
        (
            relative_path(mended.path, data),
            f"[{mended.position}, {mended.end})",
            offsets_text(mended.offsets),
            "-" if mended.side_file is None else relative_path(mended.side_file, data),
        )
        for mended in done.mended
    ]
    return CommandResult(
        {"found": report_json(found, Path()), "repair": _as_json(done, data)},
        *([TextTable(("file", "bytes", "offsets", "set aside in"), rows)] if rows else []),
        f"{counted(done.logs, 'log')}, {counted(done.segments, 'segment')}: {_outcome(done)}",
    )


def _verified(location: QueueLocation) -> Report:
    """What a queue finds in its logs, behind a progress bar where it tells how far it is."""
    with closing(location.reader()) as reader, progress_bytes("verifying") as show:
        return reader.verify(show)


def _report_parts(report: Report) -> list[str | TextTable]:
    """The findings as a table, and one line on the whole."""
    rows = [
        (
            finding.kind,
            finding.path,
            f"[{finding.position}, {finding.end})",
            offsets_text(finding.offsets),
            finding.reason,
        )
        for finding in report.findings
    ]
    state = "sound" if report.is_sound else "DAMAGED: `quiver repair` sets the damaged bytes aside"
    parts = (
        counted(report.logs, "log"),
        counted(report.segments, "segment"),
        counted(report.frames, "frame"),
        counted(report.messages, "message"),
        counted(report.bytes, "byte"),
    )
    table = TextTable(("kind", "file", "bytes", "offsets", "reason"), rows)
    return [*([table] if rows else []), f"{', '.join(parts)}: {state}"]


def _outcome(done: Repair) -> str:
    if not done.mended and not done.indexes_rebuilt:
        return "nothing to mend"
    return (
        f"{counted(len(done.mended), 'range')} set aside,"
        f" {counted(done.indexes_rebuilt, 'index', 'indexes')} made anew; nothing was deleted"
    )


def _as_json(done: Repair, data: Path) -> dict[str, Any]:
    mended = [
        asdict(one)
        | {
            "path": str(relative_path(one.path, data)),
            "side_file": None if one.side_file is None else str(relative_path(one.side_file, data)),
        }
        for one in done.mended
    ]
    return asdict(done) | {"mended": mended}
