"""What commands print: a table for people, JSON for programs, a bar while it takes long."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

# A pipe has no width, and a row that is wrapped or cut is useless to grep.
_PIPE_COLUMNS = 10_000


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their column names, as wide as the terminal allows."""
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for row in rows:
        # As Text, because a stored name may contain what rich takes for markup.
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS).print(table)


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
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total())
        yield lambda done: progress.advance(task, done)
