"""Servers and generators of load as processes of their own: started, waited for, watched, ended."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[2]

_START_S = 30.0
_STOP_S = 30.0
_LOOK_S = 0.02
# Of prctl(2).
_SET_PARENT_DEATH_SIGNAL = 1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Behind the name of the command in /proc/PID/stat, which ends with a parenthesis.
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _ENDED_CHILDREN = 1, 11, 12, slice(13, 15)


def program(name: str) -> str | None:
    """Where a program is: beside this interpreter, or on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def server_process(command: Sequence[str], port: int, log: Path) -> Iterator[int]:
    """The pid of a server that listens; it is told to end behind the block, and killed if it does not."""
    with log.open("wb") as output:
        # In a session of its own, so that Ctrl-C reaches us alone, and we end it in order.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - No thread of ours runs meanwhile.
        )
    try:
        _await_listening(process, port, log)
        yield process.pid
    finally:
        _end(process)


def connection(port: int, timeout_s: float = 60.0) -> socket.socket:
    """To a server here. Every call on it fails when nothing happens for so long."""
    made = socket.create_connection((HOST, port), timeout=timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def cpu_s(pid: int) -> float:
    """What a process has used so far, with all its threads."""
    fields = _stat(pid)
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S


def tree_cpu_s() -> float:
    """What this process and all below it have used so far, those that ended included."""
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        # One that has just ended is counted by its parent.
        with suppress(FileNotFoundError, ProcessLookupError):
            stats[int(path.name)] = _stat(int(path.name))
    ours = {os.getpid()}
    while more := {pid for pid, fields in stats.items() if int(fields[_PARENT]) in ours} - ours:
        ours |= more
    ticks = 0
    for pid in ours:
        fields = stats[pid]
        ticks += sum(map(int, (fields[_USER_TICKS], fields[_SYSTEM_TICKS], *fields[_ENDED_CHILDREN])))
    return ticks / _TICKS_PER_S


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def resident_bytes(pid: int) -> int:
    """How much memory a process has now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return 1024 * int(fields["VmRSS"].split()[0])


def _await_listening(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            connection(port).close()
        except ConnectionRefusedError:
            time.sleep(_LOOK_S)
        else:
            return
    said = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{process.args!r} does not listen on port {port}; it said: {said}")


def _end_with_parent() -> None:
    """Called in a new process: the kernel ends it when we are killed and cannot."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
