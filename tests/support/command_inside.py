"""The `quiver` command inside of the test's own process: as `run_quiver`, only without a process."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from quivermq.cli import main


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


def quiver(*arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ran:
    """Run a command without a terminal; of the environment it sees what `env` says about Quiver."""
    out, err = io.BytesIO(), io.BytesIO()
    streams: dict[str, Any] = {
        "argv": ["quiver", *map(str, arguments)],
        "stdin": io.TextIOWrapper(io.BytesIO(stdin)),
        "stdout": io.TextIOWrapper(out, write_through=True),
        "stderr": io.TextIOWrapper(err, write_through=True),
    }
    seen = {name: value for name, value in os.environ.items() if not name.startswith("QUIVER_")}
    with patch.dict(os.environ, seen | (env or {}), clear=True), patch.multiple(sys, **streams):
        try:
            code = main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        sys.stdout.flush()
    return Ran(code, out.getvalue(), err.getvalue().decode())


def run_inside(
    *arguments: str | Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`run_quiver` for tests of which the process is not the point: one costs a second."""
    ran = quiver(*arguments, env=env)
    return subprocess.CompletedProcess(arguments, ran.code, ran.text, ran.err)
