"""`quiver backup` and `quiver restore`: a queue as it was at some moment, in a directory or a bucket."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from quivermq.backup import check_backups, open_set
from quivermq.cli.command import answering
from quivermq.cli.connecting import loaded_here, open_queue
from quivermq.cli.durations import moment_text, parse_moment, parse_seconds
from quivermq.cli.options import DataOption, ServerOption
from quivermq.cli.output import CommandResult, TextTable, counted, say, size_text
from quivermq.cli.progress import progress_bytes
from quivermq.cli.stopping import stopping_orderly
from quivermq.errors import Corruption, DamagedChunk, InvalidRequest, QuiverError
from quivermq.model.backups import Backup
from quivermq.model.stats_json import report_json
from quivermq.opening import restore

_MAKE = "make"
_EVERY_SECONDS_MIN = 1.0


class BackupCommands(TyperGroup):
    """`quiver backup TARGET` is `quiver backup make TARGET`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_MAKE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=BackupCommands,
    help="Make backups of a queue that is in use, and look after them. `make` may be left out:"
    " `quiver backup /mnt/backups`.",
    no_args_is_help=True,
)

TargetArgument = Annotated[
    str, Argument(help="A directory, or a URL such as s3://bucket/path, for the backups of one queue.")
]
KeepOption = Annotated[int, Option("--keep", min=1, help="How many backups stay; the oldest go.")]


@app.command(_MAKE)
@answering
def make(
    target: TargetArgument,
    data: DataOption = None,
    server: ServerOption = None,
    every: Annotated[
        str | None, Option(help="Make one after each such span of time, `60s` or `1h`, until stopped.")
    ] = None,
    keep: Annotated[
        int | None, Option("--keep", min=1, help="Take away all but so many afterwards, the oldest first.")
    ] = None,
    *,
    as_json: bool,
) -> CommandResult:
    """Store a queue as it is now. Of what the target has already, nothing is stored again.

    The queue may be in use. With `--server` the broker writes the backup, from its machine, and only to
    the `backup_target` of its settings; `--keep` is done from here. A directory that somebody else has open
    cannot be backed up by `--data`: ask who has it.
    """
    if every is None:
        return _made(target, data, server, keep)
    seconds = parse_seconds(every)
    if seconds < _EVERY_SECONDS_MIN:
        raise InvalidRequest(f"--every {every} is too often: give at least 1s")
    has_succeeded = False
    with stopping_orderly():
        while True:
            due = time.monotonic() + seconds
            try:
                _made(target, data, server, keep).print(as_json=as_json)
                has_succeeded = True
            except QuiverError as error:
                # What never worked is more likely to be wrong than to heal.
                if not has_succeeded:
                    raise
                say(f"no backup was made: {error}; the next attempt comes in time")
            time.sleep(max(0.0, due - time.monotonic()))


def _made(target: str, data: str | None, server: str | None, keep: int | None) -> CommandResult:
    with open_queue(data, server) as mq, progress_bytes("backing up") as show:
        backup = mq.backup(target, progress=show)
    gone = 0 if keep is None else len(_pruned(target, keep))
    parts = [f"backup {backup.number} of {moment_text(backup.taken_us)}", counted(backup.files, "file")]
    parts += [size_text(backup.bytes), f"{size_text(backup.new_bytes)} stored for it"]
    if gone:
        parts.append(f"{counted(gone, 'backup')} taken away")
    notes = []
    if backup.archive is not None:
        notes.append(f"the archive {backup.archive} lies elsewhere and is not in it")
    return CommandResult({**asdict(backup), "pruned": gone}, ", ".join(parts), notes=notes)


def _pruned(target: str, keep: int) -> list[Backup]:
    with open_set(target, loaded_here().settings.bucket) as backups:
        return backups.prune(keep)


@app.command("list")
@answering
def list_backups(target: TargetArgument) -> CommandResult:
    """List the backups of a target, the oldest first."""
    with open_set(target, loaded_here().settings.bucket) as backups:
        listed = [_listed(number, entry) for number, entry in backups.entries()]
    rows = [
        (
            str(each["number"]),
            moment_text(each["taken_us"]) if "taken_us" in each else "-",
            str(each.get("files", "-")),
            size_text(each["bytes"]) if "bytes" in each else "-",
            size_text(each["new_bytes"]) if "new_bytes" in each else "-",
            each.get("error", ""),
        )
        for each in listed
    ]
    table = TextTable(("number", "taken", "files", "size", "stored", ""), rows)
    return CommandResult({"backups": listed}, table)


def _listed(number: int, entry: Any) -> dict[str, Any]:
    if isinstance(entry, QuiverError):
        return {"number": number, "error": str(entry)}
    return asdict(entry.backup)


@app.command()
@answering
def verify(
    target: TargetArgument,
    number: Annotated[
        int | None, Option(help="Only this backup; otherwise all, each object of them once.")
    ] = None,
) -> CommandResult:
    """Read all that backups name, and check it, without restoring any. Exits with 6 on damage."""
    with open_set(target, loaded_here().settings.bucket) as backups, progress_bytes("verifying") as show:
        report = check_backups(backups, number, progress=show)
    whole = [each for each in report.backups if each not in report.damage]
    lines: list[str | TextTable] = []
    if report.damage:
        rows = [(str(each), reason) for each, reason in sorted(report.damage.items())]
        lines.append(TextTable(("damaged", "because"), rows))
    parts = [counted(len(whole), "whole backup")]
    # Small files are in the backup itself.
    if report.objects:
        parts += [counted(report.objects, "object"), size_text(report.bytes)]
    return CommandResult(
        {
            "is_sound": report.is_sound,
            "whole": whole,
            "damage": {str(each): reason for each, reason in report.damage.items()},
            "objects": report.objects,
            "bytes": report.bytes,
        },
        *lines,
        ", ".join(parts),
        failure=None if report.is_sound else typer.Exit(DamagedChunk.exit_code),
    )


@app.command()
@answering
def prune(target: TargetArgument, keep: KeepOption) -> CommandResult:
    """Take away all but the latest backups, and what no backup needs. One may be made meanwhile."""
    with open_set(target, loaded_here().settings.bucket) as backups:
        gone = backups.prune(keep)
    return CommandResult(
        {"pruned": [backup.number for backup in gone]}, f"took {counted(len(gone), 'backup')} away"
    )


@answering
def restore_queue(
    source: Annotated[str, Argument(help="Where the backups are: a directory or a URL.")],
    target: Annotated[
        str, Argument(help="The directory that becomes the queue, empty or not there; or the URL of one.")
    ],
    at: Annotated[
        str | None,
        Option(help="The latest backup not after this moment: 2026-01-31T12:00:00Z. Otherwise the latest."),
    ] = None,
) -> CommandResult:
    """Make a queue of a backup, every byte checked. Afterwards it is verified.

    Exits with 6 when the queue had damage when it was backed up: it is restored all the same.
    """
    with progress_bytes("restoring") as show:
        moment = None if at is None else parse_moment(at)
        restored = restore(source, target, at=moment, progress=show, settings=loaded_here().settings)
    report, backup = restored.report, restored.backup
    parts = (
        f"backup {backup.number} of {moment_text(backup.taken_us)}",
        counted(restored.topics, "topic"),
        counted(report.messages, "message"),
        size_text(backup.bytes),
    )
    findings = [(each.kind, str(each.path), each.reason) for each in report.findings]
    lines = [TextTable(("kind", "file", "reason"), findings)] if findings else []
    state = "sound" if report.is_sound else "DAMAGED: `quiver repair` sets the damaged bytes aside"
    return CommandResult(
        {
            "backup": asdict(backup),
            "topics": restored.topics,
            "report": report_json(report, Path() if "://" in target else Path(target).absolute()),
        },
        *lines,
        f"restored {', '.join(parts)}: {state}",
        failure=None if report.is_sound else typer.Exit(Corruption.exit_code),
    )
