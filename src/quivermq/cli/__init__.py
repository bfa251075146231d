"""The command line: one file per command, and here what they all share, the way out.

Nothing outside of the standard library is imported until `main` runs, so that without the `cli`
extra the command can say what is missing.
"""

import errno
import json
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from quivermq.errors import DiskRefused, InvalidRequest, QuiverError, StorageFailed, error_json

INTERRUPTED = 130
# What goes wrong with a file that the output goes to; everything else of the disk has a class of its own.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# EBADF is an output that was closed before we began, by `>&-`: see _fill_streams.
_OUTPUT_FAILED = {*_NO_ROOM, errno.EIO, errno.EBADF}


def main() -> int:
    """Run the command that `sys.argv` asks for and return the exit code, or raise SystemExit."""
    # Looked for rather than imported: a command imports rich where it uses it, and starts sooner.
    if any(find_spec(name) is None for name in ("typer", "rich")):
        print("error: install the command line: pip install 'quivermq[cli]'", file=sys.stderr)
        return 1
    _fill_streams()
    from quivermq.cli.app import app

    as_json = _wants_json(sys.argv)
    try:
        try:
            # A program that wants JSON gets its errors as JSON, also about the options it gave.
            return app(prog_name="quiver", standalone_mode=not as_json) or 0
        finally:
            # A reader that has gone away is noticed here, not in the interpreter's last breath.
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return 1
    except Exception as error:
        failed = _error_to_report(error, as_json=as_json)
        if failed is None:
            raise
        # Where the errors go there may be no room either, and then the exit code has to do.
        with suppress(OSError):
            print(_report(failed, as_json=as_json), file=sys.stderr, flush=True)
        return failed.exit_code


def _fill_streams() -> None:
    """Put something in the place of standard streams that were closed, where Python has None.

    Otherwise a file of the queue would get their number, and whatever a library below writes to the error
    stream would land in it. There is nothing to read, errors are dropped, and output is refused, or `get`
    would acknowledge what nobody can have.
    """
    streams = (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))
    for name, mode, flags in streams:
        if getattr(sys, name) is None:
            # The lowest number that is free is the right one, because those below it are filled.
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, closefd=False))


def _error_to_report(error: Exception, *, as_json: bool) -> QuiverError | None:
    """The error of ours that says what happened; None for what is a bug, or what typer says itself."""
    if isinstance(error, QuiverError):
        return error
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_FAILED:
        _drop_output()
        return _output_error(error)
    if not as_json:
        return None
    # What the parser of options says, or an answer of no to a question.
    if callable(format_message := getattr(error, "format_message", None)):
        return InvalidRequest(format_message())
    return InvalidRequest("it was not confirmed") if type(error).__name__ == "Abort" else None


def _output_error(error: OSError) -> QuiverError:
    """The output could not be written: by the table of errors, as if it were a file of ours."""
    if error.errno == errno.EBADF:
        return InvalidRequest("cannot write the output: it is closed, say where it goes")
    message = f"cannot write the output: {error.strerror}"
    if error.errno in _NO_ROOM:
        return DiskRefused(f"{message}: free some room there, then retry", path=Path("-"))
    return StorageFailed(message, path=Path("-"))


def _drop_output() -> None:
    # What is still buffered goes nowhere, or the interpreter would complain on its way out.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wants_json(arguments: list[str]) -> bool:
    # Read from the arguments themselves: the error may come from anywhere in parsing or running.
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _report(error: QuiverError, *, as_json: bool) -> str:
    message = str(error)
    if error.advice and message.endswith(error.advice):
        message = message.removesuffix(error.advice) + error.command_advice
    return json.dumps({"error": error_json(error, message)}) if as_json else f"error: {message}"
