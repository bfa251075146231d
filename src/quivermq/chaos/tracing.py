"""`strace` as a fault: a system call of a process that runs is answered with an error, and not done."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quivermq.chaos.trial import wait_until

_SET_PTRACER, _ANY = 0x59616D61, -1
# Linux asks each of them for what a program calls by one name.
WRITES = "writev,write,pwrite64"
SYNCS = "fdatasync,fsync"


def allow_tracing() -> None:
    """Let others of the same user trace this process, where a security module would forbid it."""
    if os.path.exists("/proc/sys/kernel/yama/ptrace_scope"):
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_long(_ANY), 0, 0, 0)


def why_not() -> str | None:
    """Why nothing can be traced here; None when it can."""
    return None if shutil.which("strace") else "needs strace: install it with the system's package manager"


@contextmanager
def failing(
    pid: int, calls: str, error: str, when: str, log: Path, below: Path | None = None
) -> Iterator[None]:
    """While this lasts, calls of a process fail with an error: those that `when` counts, as strace has it.

    With `below`, only calls about that file or directory are counted.
    """
    command = ["strace", "--follow-forks", "--quiet=all", "--output", str(log), "--attach", str(pid)]
    if below is not None:
        command += ["--trace-path", str(below)]
    command += ["--trace", calls, "--inject", f"{calls}:error={error}:when={when}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as tracer:
        try:
            wait_until(lambda: _is_traced(pid, tracer), "strace does not get hold of the broker")
            yield
        finally:
            tracer.terminate()


def _is_traced(pid: int, tracer: "subprocess.Popen[str]") -> bool:
    if tracer.poll() is not None:
        assert tracer.stderr is not None
        raise OSError(f"strace ended: {tracer.stderr.read()}")
    return all(_tracer_of(task) == tracer.pid for task in Path(f"/proc/{pid}/task").iterdir())


def _tracer_of(task: Path) -> int:
    status = (task / "status").read_text()
    return int(status.partition("TracerPid:")[2].split()[0])
