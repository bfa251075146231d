"""A process that has imported everything, and runs what a client hands over; see warm.py."""

import atexit
import importlib.metadata
import json
import os
import re
import runpy
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable

import quivermq.aio
import quivermq.cli.app
import quivermq.spark
from quivermq.cli import main as quiver


def serve(kind: str, path: str) -> None:
    """Answer calls until the process is told to end."""
    signal.signal(signal.SIGTERM, _end)
    if kind == "spark":
        quivermq.spark.session()
    # As at a terminal, so that what is printed and what is logged come in the order of the program.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if kind == "plain":
                    _forked(connection)
                else:
                    _in_here(connection)


def _end(*_: object) -> None:
    raise SystemExit


def _forked(connection: socket.socket) -> None:
    # Nobody asks how they ended, so none of them has to wait to be asked.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork():
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 1
    try:
        code = _answer(connection)
        # What an interpreter does at its end.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
    finally:
        connection.sendall(bytes([code]))
        os._exit(code)


def _in_here(connection: socket.socket) -> None:
    kept = [os.dup(number) for number in range(3)]
    environment, directory = dict(os.environ), os.getcwd()
    try:
        with warnings.catch_warnings():
            code = _answer(connection)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)
        os.chdir(directory)
        # Java's place and the like stay known, or the next call would look for them again.
        os.environ.update(environment)
    connection.sendall(bytes([code]))


def _answer(connection: socket.socket) -> int:
    """Take a call over, with its files and its environment, and return what it ends with."""
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    told = b""
    while len(told) < int.from_bytes(size, "little"):
        told += connection.recv(65536)
    call = json.loads(told)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(call["directory"])
    for name in [name for name in os.environ if name.startswith("QUIVER_")]:
        del os.environ[name]
    os.environ.update(call["environment"])
    try:
        program: Callable[[list[str]], int] = _PROGRAMS[call["name"]]
        return program(call["arguments"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


def _quiver(arguments: list[str]) -> int:
    sys.argv = ["quiver", *arguments]
    return quiver()


def _python(arguments: list[str]) -> int:
    """A program of a page, and nothing else: `python -W error FILE`."""
    *options, file = arguments
    if options == ["-W", "error"]:
        warnings.simplefilter("error")
    else:
        assert not options, f"only a file can be run, not {options}"
    sys.argv = [file]
    runpy.run_path(file, run_name="__main__")
    return 0


def _pip(arguments: list[str]) -> int:
    """Installs nothing; says whether there is such an extra."""
    extras = {*(importlib.metadata.metadata("quivermq").get_all("Provides-Extra") or ())}
    asked = re.fullmatch(r"quivermq(?:\[([a-z,]+)\])?", arguments[-1])
    known = asked is not None and {*(asked[1] or "").split(",")} <= {"", *extras}
    return int(arguments[:1] != ["install"] or not known)


_PROGRAMS = {"quiver": _quiver, "python": _python, "python3": _python, "pip": _pip}

if __name__ == "__main__":
    # Forked from a process with other threads, a child may hang.
    assert threading.active_count() == 1
    serve(*sys.argv[1:])
