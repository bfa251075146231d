"""The command line: one file per command, and here what they all share, the way out.

Nothing outside of the standard library is imported until `main` runs, so that without the `cli`
extra the command can say what is missing.
"""

import json
import os
import sys

from quivermq.errors import QuiverError

INTERRUPTED = 130


def main() -> int:
    """Run the command that `sys.argv` asks for and return the exit code, or raise SystemExit."""
    try:
        from quivermq.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        print("error: install the command line: pip install 'quivermq[cli]'", file=sys.stderr)
        return 1
    try:
        try:
            app(prog_name="quiver")
        finally:
            # A reader that has gone away is noticed here, not in the interpreter's last breath.
            sys.stdout.flush()
    except QuiverError as error:
        print(_report(error, as_json=_wants_json(sys.argv)), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered goes nowhere, or the interpreter would complain on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _wants_json(arguments: list[str]) -> bool:
    # Read from the arguments themselves: the error may come from anywhere in parsing or running.
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _report(error: QuiverError, *, as_json: bool) -> str:
    if not as_json:
        return f"error: {error}"
    return json.dumps({"error": {"code": error.code, "message": str(error), "retryable": error.retryable}})
