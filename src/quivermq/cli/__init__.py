"""The command line: one file per command, and here what they all share, the way out.

Nothing outside of the standard library is imported until `main` runs, so that without the `cli`
extra the command can say what is missing.
"""

import json
import os
import sys
from importlib.util import find_spec

from quivermq.errors import QuiverError

INTERRUPTED = 130

# The library says what to call; here the same is done by a command.
_ADVICE = {
    "topics() lists those there are": "`quiver topic list` shows those there are",
    "use alter_topic to change it": "`quiver topic alter` changes it",
    "say which topic it becomes": "say --topic NAME",
    "give one another name": "give one another name with --name THERE=HERE",
    "Without strict, everything": "Without --strict, everything",
    "send `Authorization: Bearer KEY`": "set QUIVER_KEY to one",
}


def main() -> int:
    """Run the command that `sys.argv` asks for and return the exit code, or raise SystemExit."""
    # Looked for rather than imported: a command imports rich where it uses it, and starts sooner.
    if any(find_spec(name) is None for name in ("typer", "rich")):
        print("error: install the command line: pip install 'quivermq[cli]'", file=sys.stderr)
        return 1
    from quivermq.cli.app import app

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
    message = str(error)
    for library, command in _ADVICE.items():
        message = message.replace(library, command)
    if not as_json:
        return f"error: {message}"
    return json.dumps({"error": {"code": error.code, "message": message, "retryable": error.retryable}})
