"""`quiver repair`: set damaged bytes aside, so that a log can be read to its end again."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from quivermq.cli.output import (
    JsonOption,
    YesOption,
    confirm,
    counted,
    print_json,
    print_table,
    progress_bar,
)
from quivermq.cli.place import OwnDataOption
from quivermq.cli.verify import print_report, relative, report_as_json, verify_with_progress
from quivermq.log import Mended, Repair, Report, repair, total_bytes


def command(data: OwnDataOption, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Mend every log below a directory that nobody has open. Nothing is thrown away.

    Damaged bytes are copied into side files in `@quarantine` beside the log; their offsets stay, as
    gaps. Torn tails are treated likewise, and indexes that do not fit are made anew.
    """
    found = verify_with_progress(data)
    if not as_json:
        print_report(found, data)
    if _needs_repair(found):
        confirm("Set the damaged bytes aside and mend the logs?", yes=yes, as_json=as_json)
    with progress_bar("repairing", lambda: total_bytes(data)) as advance:
        done = repair(data, progress=advance)
    if as_json:
        print_json({"found": report_as_json(found, data), "repair": _as_json(done, data)})
    else:
        _print(done, data)


def _needs_repair(found: Report) -> bool:
    return any(finding.kind != "gap" for finding in found.findings)


def _print(done: Repair, data: Path) -> None:
    if done.mended:
        print_table(
            ("file", "bytes", "offsets", "set aside in"),
            [_row(mended, data) for mended in done.mended],
        )
    print(f"{counted(done.logs, 'log')}, {counted(done.segments, 'segment')}: {_outcome(done)}")


def _outcome(done: Repair) -> str:
    if not done.mended and not done.indexes_rebuilt:
        return "nothing to mend"
    return (
        f"{counted(len(done.mended), 'range')} set aside,"
        f" {counted(done.indexes_rebuilt, 'index', 'indexes')} made anew; nothing was deleted"
    )


def _row(mended: Mended, data: Path) -> tuple[str, ...]:
    start, end = mended.offsets
    return (
        str(relative(mended.path, data)),
        f"[{mended.position}, {mended.end})",
        f"[{start}, {'?' if end is None else end})",
        "-" if mended.side_file is None else str(relative(mended.side_file, data)),
    )


def _as_json(done: Repair, data: Path) -> dict[str, Any]:
    mended = [
        asdict(one)
        | {
            "path": str(relative(one.path, data)),
            "side_file": None if one.side_file is None else str(relative(one.side_file, data)),
        }
        for one in done.mended
    ]
    return asdict(done) | {"mended": mended}
