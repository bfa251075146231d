"""Silence where nothing is wrong: a query with a limit, or one that stops, leaves its tasks in the middle.

Spark's worker processes then print the traceback of a broken pipe, many times over, to the terminal of
whoever asked for three rows. Whatever they run of ours, reading, writing or a job, they import the package
`quivermq.spark` first, which asks for silence.
"""

import sys
import traceback
from typing import Any

_WORKER = "pyspark.daemon"

_print_exc = traceback.print_exc


def ignore_broken_pipes() -> None:
    """Print no tracebacks of broken pipes any more, if this is a worker process of Spark's."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == _WORKER:
        traceback.print_exc = _print_others


def _print_others(*arguments: Any, **named: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        _print_exc(*arguments, **named)
