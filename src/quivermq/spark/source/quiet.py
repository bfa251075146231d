"""Silence where nothing is wrong: a query with a limit stops listening to its tasks in the middle.

Spark's worker processes then print the traceback of a broken pipe, many times over, to the terminal of
whoever asked for three rows.
"""

import sys
import traceback
from typing import Any

from pyspark import TaskContext

_print_exc = traceback.print_exc


class Quiet:
    """A reader that silences the worker process in which it arrives, before anything can go wrong there."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        ignore_broken_pipes()


def ignore_broken_pipes() -> None:
    """Print no tracebacks of broken pipes any more, if this is a worker process of Spark's."""
    if TaskContext.get() is not None:
        traceback.print_exc = _print_others


def _print_others(*arguments: Any, **named: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        _print_exc(*arguments, **named)
