"""Silence where nothing is wrong: a query with a limit stops listening to its tasks in the middle.

Spark's worker processes then print the traceback of a broken pipe, many times over, to the terminal of
whoever asked for three rows.
"""

import sys
import traceback
from typing import Any

_WORKER = "pyspark.daemon"

_print_exc = traceback.print_exc


class Quiet:
    """Something that silences the worker process in which it arrives, before anything can go wrong."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        ignore_broken_pipes()


def ignore_broken_pipes() -> None:
    """Print no tracebacks of broken pipes any more, if this is a worker process of Spark's."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == _WORKER:
        traceback.print_exc = _print_others


def _print_others(*arguments: Any, **named: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        _print_exc(*arguments, **named)
