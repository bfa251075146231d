"""`quiver verify` and `quiver repair`: check every byte of a queue, and mend what is damaged."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import DATA_VARIABLE, Place, QueueLocation, find_location, loaded_here
from quivermq.cli.durations import moment_text
from quivermq.cli.options import DataOption, ServerOption, YesOption
from quivermq.cli.output import CommandResult, TextTable, confirm, counted, offsets_text
from quivermq.cli.progress import progress_bar, progress_bytes
from quivermq.engine.bucket_repair import cache_root, repair_bucket
from quivermq.errors import Corruption
from quivermq.log import Repair, Report, repair, total_bytes
from quivermq.model.stats_json import relative_path, report_json
from quivermq.settings import place_of
from quivermq.shared.mending import Mending


@answering
def verify_queue(data: DataOption = None, server: ServerOption = None) -> CommandResult:
    """Check every byte of every log, and every object of a bucket, beside a writer. Changes nothing.

    Exits with 0 when every message that should be there is there, otherwise with 6. A torn tail, an
    index that does not fit and a gap that an earlier repair left are told, but lose nothing that is not
    lost already.
    """
    report = _verified(find_location(data, server))
    failure = None if report.is_sound else typer.Exit(Corruption.exit_code)
    return CommandResult(report_json(report, Path()), *_report_parts(report), failure=failure)


@answering
def repair_queue(
    data: Annotated[
        str,
        Option(
            "--data",
            envvar=DATA_VARIABLE,
            show_envvar=False,
            metavar="DIR|URL",
            help=f"The data directory, or the URL of a bucket. Or set `{DATA_VARIABLE}`.",
        ),
    ],
    yes: YesOption = False,
    *,
    as_json: bool,
) -> CommandResult:
    """Mend every log of a queue that nobody has open. Nothing is thrown away.

    Damaged bytes are copied into side files in `@quarantine` beside the log; their offsets stay, as
    gaps. Torn tails are treated likewise, and indexes that do not fit are made anew.

    In a bucket, objects that cannot be read are copied below `quarantine/` first, and the queue goes on
    from what is before the first damaged chunk. Whoever owns the bucket has to stop.
    """
    place = place_of(data)
    found = _verified(QueueLocation(place))
    if not as_json:
        # Before the question about it.
        CommandResult(None, *_report_parts(found)).print(as_json=False)
    if any(finding.kind not in ("gap", "orphan") for finding in found.findings):
        confirm(_question(place), yes=yes, as_json=as_json)
    if isinstance(place, str):
        with progress_bar("repairing", lambda: found.bytes) as advance:
            both = repair_bucket(place, found, loaded_here().settings.bucket, progress=advance)
        return _told(found, both.logs, cache_root(place, loaded_here().settings.bucket), both.objects)
    with progress_bar("repairing", lambda: total_bytes(place)) as advance:
        done = repair(place, progress=advance)
    return _told(found, done, place)


def _question(place: Place) -> str:
    if isinstance(place, str):
        return "Take the queue over, set what is damaged aside, and lose what is behind a damaged chunk?"
    return "Set the damaged bytes aside and mend the logs?"


def _told(found: Report, done: Repair, root: Path, objects: Mending | None = None) -> CommandResult:
    """What was mended, below `root`, and in a bucket what became of its objects."""
    rows = [
        (
            relative_path(mended.path, root),
            f"[{mended.position}, {mended.end})",
            offsets_text(mended.offsets),
            "-" if mended.side_file is None else relative_path(mended.side_file, root),
        )
        for mended in done.mended
    ]
    document = {"found": report_json(found, Path()), "repair": _as_json(done, root)}
    if objects is not None:
        document["objects"] = asdict(objects)
    return CommandResult(
        document,
        *([] if objects is None else _object_parts(objects)),
        *([TextTable(("file", "bytes", "offsets", "set aside in"), rows)] if rows else []),
        f"{counted(done.logs, 'log')}, {counted(done.segments, 'segment')}: {_outcome(done)}",
    )


def _object_parts(objects: Mending) -> Iterator[str | TextTable]:
    """What was lost with chunks and parts, and where their bytes are."""
    if objects.chunks:
        columns = ("lost chunk", "bytes", "written from", "until", "reason", "set aside in")
        yield TextTable(
            columns,
            [
                (
                    each.number,
                    each.size,
                    "?" if each.first_us is None else moment_text(each.first_us),
                    "?" if each.last_us is None else moment_text(each.last_us),
                    each.reason,
                    each.side_object or "-",
                )
                for each in objects.chunks
            ],
        )
    if objects.parts:
        yield TextTable(
            ("file", "damaged bytes", "reason", "set aside in"),
            [
                (each.path, f"[{each.position}, {each.end})", each.reason, each.side_object or "-")
                for each in objects.parts
            ],
        )
    if objects.checkpoint:
        lost = f"{counted(len(objects.chunks), 'chunk')} lost, {counted(len(objects.parts), 'part')} mended"
        others = [f"set aside in {name}" for name in objects.side_objects]
        yield "; ".join((f"{lost}: the queue goes on from checkpoint {objects.checkpoint}", *others))


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
