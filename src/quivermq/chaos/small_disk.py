"""A file system of its own for one process, as small as wanted: nobody else sees it. Needs no root.

Linux only. It lives as long as a process in it does, or somebody holds on to its directory.
"""

import ctypes
import os
from pathlib import Path

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


def why_not() -> str | None:
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
