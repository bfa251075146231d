"""What commands print: a document for programs, or lines and tables for people.

Rich is imported where it is used: most commands in a script print JSON or nothing, and start sooner.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import typer

from quivermq.errors import InvalidRequest

# A pipe has no width, and a row that is wrapped or cut is useless to grep.
_PIPE_COLUMNS = 10_000


class TextTable(NamedTuple):
    """Rows of cells under the names of their columns."""

    columns: Sequence[str]
    rows: Sequence[Iterable[object]]

    def print(self) -> None:
        """Print it as wide as the terminal allows."""
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*self.columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for row in self.rows:
            # As Text, because a stored name may contain what rich takes for markup.
            table.add_row(*(Text(str(cell)) for cell in row))
        Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS).print(table)


class CommandResult:
    """What came of a command: `document` for programs, `parts` for people.

    `notes` are for people, beside the output. `failure` is raised when everything is printed.
    """

    def __init__(
        self,
        document: object,
        *parts: str | TextTable,
        notes: Sequence[str] = (),
        failure: Exception | None = None,
    ) -> None:
        self._document = document
        self._parts = parts
        self._notes = notes
        self._failure = failure

    def print(self, *, as_json: bool) -> None:
        """Print it for a program or for people."""
        if as_json:
            print_json(self._document)
        else:
            for part in self._parts:
                print(part) if isinstance(part, str) else part.print()
            for note in self._notes:
                say(note)
        if self._failure is not None:
            raise self._failure


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2))


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


def size_text(size_bytes: float) -> str:
    """Bytes for people."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    # Ten bits a unit; what is larger than all of them stays in the largest.
    power = min(int(size_bytes).bit_length() - 1, 10 * len(units)) // 10
    return f"{size_bytes / 1024**power:.1f} {units[power - 1]}"


def offsets_text(offsets: tuple[int, int | None]) -> str:
    """A range of offsets, of which the end may not be known."""
    start, end = offsets
    return f"[{start}, {'?' if end is None else end})"


def shown(content: bytes | None, length_max: int = 60) -> str:
    """Bytes for a cell of a table: on one line, and not too long."""
    if content is None:
        return "-"
    text = content[: 4 * length_max].decode(errors="replace")
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    cut = len(text) > length_max or len(content) > 4 * length_max
    return f"{text[: length_max - 1]}…" if cut else text
