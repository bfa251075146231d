"""The real `quiver` command in a real process, with and without a terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

QUIVER = Path(sys.executable).with_name("quiver")
INHERITED = {name: value for name, value in os.environ.items() if not name.startswith("QUIVER_")}


def run_quiver(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a program does: there is no terminal, and nothing to read."""
    return subprocess.run(
        [QUIVER, *arguments],
        env=INHERITED,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


class Session(NamedTuple):
    """What a command did at a terminal; `stdout` went into a pipe."""

    returncode: int
    stdout: str
    terminal: str


def run_at_terminal(*arguments: str | Path, answer: str = "") -> Session:
    """Run a command that reads from a terminal and complains to it, and answer its question."""
    terminal, side_of_command = pty.openpty()
    try:
        with subprocess.Popen(
            [QUIVER, *arguments],
            env=INHERITED | {"TERM": "xterm"},
            stdin=side_of_command,
            stdout=subprocess.PIPE,
            stderr=side_of_command,
            text=True,
        ) as process:
            os.close(side_of_command)
            shown = _read_until(terminal, "[y/N]") if answer else ""
            os.write(terminal, answer.encode())
            shown += _read_until(terminal, None)
            assert process.stdout is not None
            stdout = process.stdout.read()
    finally:
        os.close(terminal)
    return Session(process.returncode, stdout, shown)


def _read_until(terminal: int, text: str | None) -> str:
    """What is shown up to a text, or up to the end."""
    shown = b""
    while text is None or text.encode() not in shown:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            # How Linux says that nobody has the other side open any more.
            assert text is None, f"never asked: {shown.decode()}"
            break
    return shown.decode()


def table_rows(output: str) -> list[list[str]]:
    """The cells of every row of the last table that was printed."""
    rows: list[list[str]] = []
    is_inside = False
    for line in map(str.strip, output.splitlines()):
        if line and set(line) <= {"─", " "}:
            rows, is_inside = [], True
        elif not line:
            is_inside = False
        elif is_inside:
            rows.append([cell.strip() for cell in line.split("  ") if cell.strip()])
    return rows


def everything(directory: Path) -> dict[str, tuple[int, bytes | None]]:
    """Every file and directory: when it was last changed, and what a file holds."""
    paths = [directory, *directory.rglob("*")]
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in paths
    }
