"""What commands print: a table for people, JSON for programs, a bar while it takes long.

Rich is imported where it is used: most commands in a script print JSON or nothing, and start sooner.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from quivermq.errors import InvalidRequest

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

# A pipe has no width, and a row that is wrapped or cut is useless to grep.
_PIPE_COLUMNS = 10_000


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their column names, as wide as the terminal allows."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for row in rows:
        # As Text, because a stored name may contain what rich takes for markup.
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS).print(table)


def print_line_of_json(value: object) -> None:
    """Print JSON on a line of its own, as one of many."""
    print(json.dumps(value, separators=(",", ":")))


def say(text: str) -> None:
    """Tell people something beside the output, where it spoils no pipe."""
    print(text, file=sys.stderr)


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask before something that cannot be undone; whoever cannot be asked has to say --yes."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise InvalidRequest("this changes things for good: run it at a terminal, or say --yes")
    typer.confirm(question, abort=True, err=True)


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """A number and what it counts: 1 log, 2 logs."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


@contextmanager
def progress_bar(what: str, total: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """A bar over bytes on the error stream, where it spoils no pipe; only at a terminal.

    Gives a function that moves it on. `total` is asked only when there is a bar to show.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total())
        yield lambda done: progress.advance(task, done)


@contextmanager
def progress_count(what: str) -> Iterator[Callable[[int], None]]:
    """A count that grows while nobody knows where it will end; on the error stream, at a terminal.

    Gives a function that adds to it.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}: {task.completed:,.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done: progress.advance(task, done)


def size_text(size_bytes: float) -> str:
    """Bytes for people."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    # Ten bits a unit; what is larger than all of them stays in the largest.
    place = min(int(size_bytes).bit_length() - 1, 10 * len(units)) // 10
    return f"{size_bytes / 1024**place:.1f} {units[place - 1]}"


def state_text(state: str) -> str:
    """The state of a group for people."""
    return state.replace("_", " ")
