"""`quiver verify`: check every byte of a data directory and tell what was found."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from quivermq.cli.output import JsonOption, counted, print_json, print_table, progress_bar
from quivermq.cli.place import DataOption, ServerOption, connected, find_place
from quivermq.errors import Corruption
from quivermq.log import LogFinding, Report, total_bytes, verify

_PATIENCE_SECONDS = 24 * 3600


def command(data: DataOption = None, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Check every byte of every log. Changes nothing; may run beside a writer.

    Exits with 0 when every message that should be there is there, otherwise with 6. A torn tail, an
    index that does not fit and a gap that an earlier repair left are told, but lose nothing that is not
    lost already.
    """
    place = find_place(data, server)
    if place.data is not None:
        report = verify_with_progress(place.data)
    else:
        assert place.server is not None
        # Nothing comes back before the last byte is checked, and there may be many.
        with connected(place.server, timeout=_PATIENCE_SECONDS) as client:
            report = client.verify()
    root = place.data or Path()
    if as_json:
        print_json(report_as_json(report, root))
    else:
        print_report(report, root)
    if not report.is_sound:
        raise typer.Exit(Corruption.exit_code)


def verify_with_progress(data: Path) -> Report:
    """Verify a directory behind a progress bar."""
    with progress_bar("verifying", lambda: total_bytes(data)) as advance:
        return verify(data, progress=advance)


def print_report(report: Report, data: Path) -> None:
    """The findings as a table, and one line on the whole."""
    if report.findings:
        print_table(
            ("kind", "file", "bytes", "offsets", "reason"),
            [_row(finding, data) for finding in report.findings],
        )
    state = "sound" if report.is_sound else "DAMAGED: `quiver repair` sets the damaged bytes aside"
    parts = (
        counted(report.logs, "log"),
        counted(report.segments, "segment"),
        counted(report.frames, "frame"),
        counted(report.messages, "message"),
        counted(report.bytes, "byte"),
    )
    print(f"{', '.join(parts)}: {state}")


def report_as_json(report: Report, data: Path) -> dict[str, Any]:
    """The report as programs read it."""
    fields = asdict(report) | {"is_sound": report.is_sound}
    fields["findings"] = [
        asdict(finding) | {"path": str(relative(finding.path, data))} for finding in report.findings
    ]
    return fields


def relative(path: Path, data: Path) -> Path:
    """A file's path below the data directory, which everybody who asked knows already."""
    return path.relative_to(data) if path.is_relative_to(data) else path


def _row(finding: LogFinding, data: Path) -> tuple[str, ...]:
    start, end = finding.offsets
    return (
        finding.kind,
        str(relative(finding.path, data)),
        f"[{finding.position}, {finding.end})",
        f"[{start}, {'?' if end is None else end})",
        finding.reason,
    )
