"""Faults of the system that a real process runs on: failing calls, a small disk, a clock that is set.

`strace` answers a system call of a process with an error in place of doing it. A small disk is a file
system of its own for one process, which nobody else sees and which needs no root; Linux only. It is there
as long as a process in it is, or somebody holds on to its directory.
"""

import ctypes
import mmap
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from quivermq.chaos import wait_until
from quivermq.clock import SystemClock

_SET_PTRACER, _ANY = 0x59616D61, -1


def allow_tracing() -> None:
    """Let others of the same user trace this process, where a security module would forbid it."""
    if os.path.exists("/proc/sys/kernel/yama/ptrace_scope"):
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_long(_ANY), 0, 0, 0)


def why_no_tracing() -> str | None:
    """Why nothing can be traced here; None when it can."""
    return None if shutil.which("strace") else "needs strace: install it with the system's package manager"


@contextmanager
def failing_calls(
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


_NEW_NAMESPACE, _NEW_USER = 0x00020000, 0x10000000
_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14


def move_to_small_disk(path: Path, size_bytes: int) -> None:
    """Let this process find a new, empty file system at `path`. Raises OSError where that is not allowed.

    It must not have threads yet.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    path.mkdir(parents=True, exist_ok=True)
    if libc.unshare(_NEW_NAMESPACE) != 0:
        # Whoever is not root may still be it in a world of their own.
        _check(libc.unshare(_NEW_USER | _NEW_NAMESPACE), "a name space of one's own")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _check(libc.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None), "mounts of one's own")
    options = f"size={size_bytes}".encode()
    _check(libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, options), "a file system in memory")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: {what}")


def seen_by(pid: int, path: Path) -> Path:
    """The directory that a process has at a path, as others can reach it."""
    return Path(f"/proc/{pid}/root{path}")


def why_no_small_disk() -> str | None:
    """Why there is no such file system to be had here; None when there is."""
    if not Path("/proc/self/ns/mnt").exists():
        return "needs Linux"
    pid = os.fork()
    if pid == 0:
        try:
            move_to_small_disk(Path("/tmp"), 65536)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return None if status == 0 else "needs a mount name space, which this machine does not allow"


_SHIFT = Struct("<q")


class JumpingClock:
    """The machine's clock, wrong by as much as a small file says. Time that passes is true."""

    def __init__(self, path: Path) -> None:
        self._clock = SystemClock()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, _SHIFT.size)
            self._shared = mmap.mmap(descriptor, _SHIFT.size)
        finally:
            os.close(descriptor)

    def now_us(self) -> int:
        shift_us: int = _SHIFT.unpack(self._shared[:])[0]
        return self._clock.now_us() + shift_us

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def set(self, shift_s: float) -> None:
        """Let it be wrong by so many seconds, for everybody who has the file open."""
        self._shared[:] = _SHIFT.pack(round(shift_s * 1_000_000))
