"""How far something is that takes long: on the error stream, where it spoils no pipe, at a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quivermq.reading.reader import ProgressCallback

Advance = Callable[[int], None]


@contextmanager
def progress_display(*columns: str) -> "Iterator[ProgressCallback | None]":
    """Bars, one for each description; None where nobody looks. `columns` are those of rich."""
    if not sys.stderr.isatty():
        yield None
        return
    import rich.progress
    from rich.console import Console

    wanted = columns or (
        "SpinnerColumn",
        "{task.description}",
        "BarColumn",
        "MofNCompleteColumn",
        "TimeElapsedColumn",
    )
    made = [name if name.startswith("{") else getattr(rich.progress, name)() for name in wanted]
    with rich.progress.Progress(*made, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, rich.progress.TaskID] = {}

        def show(description: str, done: float, total: float | None = None) -> None:
            if description not in tasks:
                tasks[description] = bars.add_task(description, total=total)
            # A job has one bar after the other, and room is for those that move.
            is_hidden = not columns and total is not None and done >= total
            bars.update(tasks[description], completed=int(done), total=total, visible=not is_hidden)

        yield show


@contextmanager
def progress_bytes(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over bytes. Gives a function that shows how many of how many are done."""
    with progress_display(
        "{task.description}", "BarColumn", "DownloadColumn", "TimeRemainingColumn"
    ) as show:
        yield lambda done, total: None if show is None else show(what, done, total)


@contextmanager
def progress_bar(what: str, total: Callable[[], int]) -> Iterator[Advance]:
    """The same; gives a function that moves it on. `total` is asked only when there is a bar to show."""
    with progress_bytes(what) as show:
        total_bytes = total() if sys.stderr.isatty() else 0
        yield _adding(lambda done: show(done, total_bytes))


@contextmanager
def progress_count(what: str) -> Iterator[Advance]:
    """A count that grows while nobody knows where it will end. Gives a function that adds to it."""
    columns = ("SpinnerColumn", "{task.description}: {task.completed:,.0f}", "TimeElapsedColumn")
    with progress_display(*columns) as show:
        yield _adding(lambda done: None if show is None else show(what, done))


def _adding(show: Callable[[int], None]) -> Advance:
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        show(done)

    return advance
