"""`quiver chaos`: break a queue on this machine, on purpose, and see whether everything holds."""

import logging
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from quivermq.cli.options import JsonOption
from quivermq.cli.output import CommandResult, TextTable, counted, say
from quivermq.cli.serve import check_parts
from quivermq.errors import InvalidRequest, StorageFailed

if TYPE_CHECKING:
    from quivermq.chaos.run import Outcome

_SECONDS = 60.0
_CLEAR_LINE = "\r\x1b[K"


def command(
    data: Annotated[
        Path | None,
        Option(help="A new or empty directory to work in. Without it, one of the system's for a while."),
    ] = None,
    seconds: Annotated[
        float | None, Option(help="How long to go on; every case is tried once at least.", min=0)
    ] = None,
    cycles: Annotated[
        int | None, Option(help="Try each case once, with so many kills or faults.", min=1)
    ] = None,
    fault: Annotated[list[str] | None, Option(help="Only this fault; may be given more than once.")] = None,
    seed: Annotated[str | None, Option(help="Do the same as an earlier run.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Kill, starve and damage queues and brokers of this machine, and show what held.

    Nothing of yours is touched: everything happens in a directory of its own, which is removed when
    everything held. Otherwise it is kept, its place and the seed are shown, and the command exits with 6.
    Ctrl-C ends it early: the table shows what was tried until then.
    What cannot be tried here, for want of a tool or a right, says so. `--fault soak` has to be asked for.
    """
    check_parts()
    from quivermq.chaos.run import Plan, prepared, run

    if seconds is not None and cycles is not None:
        raise InvalidRequest("--seconds says how long and --cycles how much: give one of them")
    directory = _directory(data)
    plan = Plan(
        directory,
        seed or secrets.token_hex(4),
        fault or (),
        seconds=_SECONDS if seconds is None and cycles is None else seconds,
        cycles=cycles,
        on_progress=_show,
    )
    if not as_json:
        say(f"seed {plan.seed}, in {directory}")
    outcomes = prepared(plan)
    try:
        with _silence():
            run(plan, outcomes)
    finally:
        if sys.stderr.isatty():
            print(_CLEAR_LINE, end="", file=sys.stderr)
        cases = [_as_json(outcome) for outcome in outcomes]
        CommandResult({"seed": plan.seed, "cases": cases}, *_parts(outcomes)).print(as_json=as_json)
        has_held = all(outcome.has_held for outcome in outcomes)
        if has_held:
            shutil.rmtree(directory, ignore_errors=True)
    if not has_held:
        raise typer.Exit(StorageFailed.exit_code)


@contextmanager
def _silence() -> Iterator[None]:
    """What is broken on purpose is nothing to report."""
    logger = logging.getLogger("quivermq")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _directory(data: Path | None) -> Path:
    """An empty directory. Raises InvalidRequest for one that is in use."""
    if data is None:
        return Path(tempfile.mkdtemp(prefix="quiver-chaos-"))
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise InvalidRequest(
            f"{data} is not empty, and what is in it would be broken: name a new directory"
        )
    return data.absolute()


def _show(outcome: "Outcome") -> None:
    """Show at a terminal what was just tried."""
    if sys.stderr.isatty():
        case = outcome.case
        state = "held" if outcome.has_held else "FAILED"
        text = f"{case.fault}, {case.against}, {case.name}: {state} {counted(outcome.tried, 'time')}"
        print(f"{_CLEAR_LINE}{text}", end="", file=sys.stderr, flush=True)


def _parts(outcomes: "list[Outcome]") -> list[str | TextTable]:
    """A table of all cases, and what did not hold."""
    from quivermq.chaos.cases import FAULTS

    rows: list[tuple[str, ...]] = []
    for fault in FAULTS:
        named = (fault.name, fault.promise)
        for outcome in (each for each in outcomes if each.case.fault == fault.name):
            rows.append((*named, outcome.case.against, outcome.case.name, *_result(outcome)))
            named = ("", "")
    failures = [
        f"{each.case.fault}, {each.case.against}, {each.case.name}, seed {each.seed}: {each.failure}\n"
        f"  look at {each.kept}"
        for each in outcomes
        if not each.has_held
    ]
    return [TextTable(("fault", "what must hold", "against", "how", "tried", "result"), rows), *failures]


def _result(outcome: "Outcome") -> tuple[str, str]:
    if outcome.why_not is not None:
        return "-", f"not tried: {outcome.why_not}"
    if not outcome.has_held:
        return f"{outcome.tried:,}", "DID NOT HOLD"
    return f"{outcome.tried:,}", "held" if outcome.tried else "not tried: there was no time"


def _as_json(outcome: "Outcome") -> dict[str, Any]:
    return {
        "fault": outcome.case.fault,
        "against": outcome.case.against,
        "how": outcome.case.name,
        "tried": outcome.tried,
        "seconds": round(outcome.seconds, 3),
        "held": outcome.has_held if outcome.tried or not outcome.has_held else None,
        "not_tried_because": outcome.why_not,
        "failure": outcome.failure,
        "seed": outcome.seed or None,
        "kept": None if outcome.kept is None else str(outcome.kept),
    }
