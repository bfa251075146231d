"""The only door to files.

Everything above asks a `Disk` and gets a `File`, so that a test can put a disk behind the door that
stops, tears, forgets, fails and fills up. Nothing here knows what the bytes mean.

What a disk promises, and what the layers above may rely on after a power cut:

- `File.append` is visible to every reader at once, durable only after `File.sync`.
- a new, renamed or removed name is durable only after `Disk.sync_directory` of its directory.
- bytes that were not synced may be there, be missing, or be there in part, in any combination.

A disk whose truth is elsewhere, an object store for instance, has `commits` besides: there order costs
nothing, and what is durable is waited for by many together, holding no lock meanwhile.

Directories may be links, because operators move them to other disks. Files may not: somebody else may
have filled the directory, and a link in it must not lead a writer out of it.
"""

import errno
import hashlib
import mmap
import os
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from quivermq.errors import (
    DirectoryLocked,
    DiskFull,
    DiskRefused,
    FsyncFailed,
    QuiverError,
    StorageFailed,
    UnsupportedSystem,
)

Answer = TypeVar("Answer")

# Everything but a directory works without: a client may be on any system.
_HAS_LOCKS = find_spec("fcntl") is not None
if _HAS_LOCKS:
    import fcntl

# Bytes in memory; a memoryview must have items of one byte, so that its length is its size.
Buffer = bytes | bytearray | memoryview

# Stands for everything that was done to a disk before it was given out.
Ticket = int

# What the usual file systems let a name have.
# What is free on a disk that knows no end, as a bucket.
ENDLESS_BYTES = 1 << 60
_NAME_BYTES_MAX = 255
_BUFFERS_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16

# Nobody but the owner may read messages, unless the directory was given to a group: see `_is_for_group`.
_PRIVATE_MODE = 0o600
_GROUP_MODE = 0o640
_PRIVATE_DIRECTORY = 0o700
_GROUP_DIRECTORY = 0o750
_PROGRAM_MODE = 0o755
# The bits that say who a directory is for, and what they are where it is for a group and nobody else.
_AUDIENCE = stat.S_ISGID | 0o057
_FOR_GROUP = stat.S_ISGID | 0o050
# As other programs do it: the umask takes away what the user does not want.
_ORDINARY_MODE = 0o666
_ORDINARY_DIRECTORY = 0o777

# The number of the process that holds a lock, and the address where it serves.
_HOLDER_BYTES_MAX = 512

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Refused before anything was done, and no longer once somebody has seen to it.
_ADVICE = {
    errno.EROFS: "mount it for writing, then retry",
    errno.EMFILE: "close some, or raise the limit (`ulimit -n`), then retry",
    errno.ENFILE: "close some, or raise the system's limit, then retry",
}
_fdatasync = getattr(os, "fdatasync", os.fsync)


class File(Protocol):
    """One open file. Only `append` and `truncate` move its end."""

    path: Path

    def size(self) -> int:
        """The file's length in bytes, as every process sees it now."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers behind the end, in order, and return how many bytes that were.

        Raises DiskRefused or StorageFailed, and may then have written a part: the caller, who knows
        where the end was, cuts it off with `truncate`.
        """
        ...

    def rewrite(self, position: int, data: Buffer) -> None:
        """Write the bytes that are there already over themselves, so that the next sync covers them."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def map(self, length: int) -> memoryview:
        """The first `length` bytes as memory, without a copy, valid after `close`.

        The caller makes sure that the file never gets shorter than that: reading a mapped byte
        that is gone ends the process.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes. Raises StorageFailed."""
        ...

    def sync(self) -> None:
        """Return once everything appended so far survives power loss, or raise FsyncFailed."""
        ...

    def close(self) -> None:
        """Let go of the file. Closing twice is allowed."""
        ...


class Lock(Protocol):
    """A held lock on a directory."""

    def release(self) -> None:
        """Let somebody else have it. Releasing twice is allowed."""
        ...


class Commits(Protocol):
    """How a disk whose truth is elsewhere makes durable what was done: all of it in one order.

    So a sync that others only build on need not wait for anything, and one that somebody is told of waits
    until the truth has come so far. Which of the two it is, only its caller's callers know: they say it by
    `together` and `ordered`. Outside of both every sync waits.
    """

    @property
    def failure(self) -> QuiverError | None:
        """Why nothing can be changed any more, NotOwner for instance; None while everything can."""
        ...

    def ticket(self) -> Ticket:
        """What stands for everything done so far."""
        ...

    def is_committed(self, ticket: Ticket) -> bool:
        """Whether everything that a ticket stands for is durable."""
        ...

    def commit(self, ticket: Ticket) -> None:
        """Return once that is durable; within `together` or `ordered` at once, and their end sees to it.

        Raises StoreUnreachable, NotOwner, StoreDenied, StoreNotFound.
        """
        ...

    def note(self, ticket: Ticket) -> None:
        """Have the end of `together` wait for a ticket, too: somebody is shown what it stands for."""
        ...

    def together(self, act: Callable[[], Answer]) -> Answer:
        """Do something for somebody, and wait once, at its end, for all that it has synced and shown.

        The caller holds no lock. When `act` raises, nothing is waited for. Raises as `commit`: then it is
        done, and nobody knows whether it survives.
        """
        ...

    def ordered(self, act: Callable[[], Answer]) -> Answer:
        """Do something that nobody is told of: it becomes durable soon, and nothing is waited for.

        Not even by the end of `together` around it: what somebody is told of is to be committed there.
        """
        ...

    def admit(self) -> None:
        """Return once there is room for changes. Raises what keeps them out: `failure`, or StoreBehind.

        Whoever asks before it takes a lock need not wait while holding it.
        """
        ...


class Disk(Protocol):
    """A tree of files."""

    @property
    def commits(self) -> Commits | None:
        """How it makes things durable, if that is elsewhere; None where a sync does it at once."""
        ...

    def create(self, path: Path, *, is_private: bool = False) -> File:
        """A new, empty file, open for writing and reading. Replaces one that is there.

        Nobody but its owner may read a private one, from the beginning.
        """
        ...

    def open(self, path: Path, *, writable: bool = False) -> File:
        """An existing file. Raises FileNotFoundError when there is none.

        Raises StorageFailed for what is not a regular file: a link, a pipe, a device.
        """
        ...

    def names(self, directory: Path) -> list[str]:
        """The sorted names in a directory; empty when there is no such directory."""
        ...

    def is_directory(self, path: Path) -> bool: ...

    def exists(self, path: Path) -> bool: ...

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, durably. Does nothing when it is there."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name in one step, replacing what had that name."""
        ...

    def remove(self, path: Path) -> None:
        """Take a name away. Readers that have the file open keep it."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Take an empty directory away. Raises StorageFailed when it is not empty."""
        ...

    def free_bytes(self, path: Path) -> int:
        """How much room there is for files below a directory."""
        ...

    def sync_directory(self, directory: Path) -> None:
        """Return once all names in the directory survive power loss, or raise FsyncFailed."""
        ...

    def lock(self, path: Path, *, with_directory: bool = False) -> Lock:
        """Hold the lock file at `path`, or raise DirectoryLocked at once. Ends with the process.

        With the directory as well, nobody gets around the lock by taking the file away.
        """
        ...


class FileMark(NamedTuple):
    """What a file system says of a file: another one once it was changed or replaced."""

    size: int
    changed_us: int
    """When that was last done, in unix microseconds."""
    text: str


@runtime_checkable
class MarkingDisk(Protocol):
    """A disk that tells whether a file has changed without reading it; not every `Disk` can."""

    def mark(self, path: Path) -> FileMark:
        """The mark of a file as it is now. Raises FileNotFoundError, and StorageFailed as `Disk.open`."""
        ...


class SystemFile:
    """A file of the operating system. Its descriptor's own position always stands at the end."""

    def __init__(self, path: Path, flags: int, mode: int = _PRIVATE_MODE) -> None:
        self.path = path
        self._descriptor = _open_regular(path, flags, mode)
        try:
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except BaseException:
            self.close()
            raise

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise _failure("look at", self.path, error) from error

    def append(self, buffers: Sequence[Buffer]) -> int:
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        if len(buffers) > _BUFFERS_MAX:
            buffers = [b"".join(buffers)]
        try:
            written = os.writev(self._descriptor, buffers)
            if written < total:
                self._append_rest(memoryview(b"".join(buffers))[written:])
        except OSError as error:
            raise _write_error(error, self.path, total) from error
        return total

    def _append_rest(self, rest: memoryview) -> None:
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def rewrite(self, position: int, data: Buffer) -> None:
        rest = memoryview(data)
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, position)
                rest, position = rest[written:], position + written
        except OSError as error:
            raise _write_error(error, self.path, len(data)) from error

    def read(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._descriptor, length, position)
            while 0 < len(data) < length:
                more = os.pread(self._descriptor, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise StorageFailed(
                f"cannot read {self.path} at byte {position}: {error.strerror}", path=self.path
            ) from error
        return data

    def map(self, length: int) -> memoryview:
        # mmap takes -1 for "no file at all" and would hand out zeros.
        assert self._descriptor >= 0, f"{self.path} is closed"
        if length == 0:
            return memoryview(b"")
        try:
            return memoryview(mmap.mmap(self._descriptor, length, access=mmap.ACCESS_READ))
        except OSError as error:
            raise _failure("map", self.path, error) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            # Never a refusal that may end: what was to be cut off is still there.
            raise StorageFailed(
                f"cannot cut {self.path} to {size} bytes: {error.strerror}", path=self.path
            ) from error

    def sync(self) -> None:
        try:
            _fdatasync(self._descriptor)
        except OSError as error:
            raise _sync_error(error, self.path) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if descriptor >= 0:
                os.close(descriptor)
        except OSError as error:
            raise _failure("close", self.path, error) from error


class SystemLock:
    """A `flock` on a file that names its holder. The kernel releases it when the process dies."""

    def __init__(self, path: Path, *, with_directory: bool = False) -> None:
        self._directory = -1
        try:
            self._descriptor = _open_regular(path, os.O_RDWR | os.O_CREAT, _file_mode(path.parent))
        except OSError as error:
            raise _write_error(error, path, 0) from error
        try:
            if with_directory:
                self._take_directory(path.parent)
            self._take(path)
        except BaseException:
            self.release()
            raise

    def _take_directory(self, directory: Path) -> None:
        try:
            self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._locked(directory) from None
        except OSError as error:
            # Some file systems lock no directories: there the file has to do.
            if error.errno in _ADVICE:
                raise _failure("lock", directory, error) from error

    def _take(self, path: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            raise self._locked(path.parent) from None
        except OSError as error:
            # The lock is held, with or without room for its holder's number.
            if error.errno not in _NO_SPACE:
                raise _write_error(error, path, 0) from error
        _held_locks.add(self)

    def _locked(self, directory: Path) -> DirectoryLocked:
        """Who has it, as the file says: a process, and where it serves if it does."""
        try:
            told = os.pread(self._descriptor, _HOLDER_BYTES_MAX, 0).decode(errors="replace").split("\n")
        except OSError:
            told = []
        pid, url = (*told, "", "")[:2]
        return DirectoryLocked(directory, pid=int(pid) if pid.isdigit() else None, url=url or None)

    def release(self) -> None:
        # The file stays: removing it would let two processes lock two different files of one name.
        _held_locks.discard(self)
        descriptors = (self._descriptor, self._directory)
        self._descriptor = self._directory = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)


# Strong references: a lock that nobody remembers is still held.
_held_locks: set["SystemLock"] = set()


def _disown_locks() -> None:
    """In a forked child: the lock is the parent's, and must not outlive it in here."""
    for lock in list(_held_locks):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_locks)


class SystemDisk:
    """The file system of this machine. What it makes is for its owner alone, or for a group as well.

    Raises UnsupportedSystem where a queue cannot keep its promises.
    """

    commits: Commits | None = None

    def __init__(self) -> None:
        if not _HAS_LOCKS:
            raise UnsupportedSystem(
                f"{sys.platform} has no locks on files as a data directory needs them: run `quiver serve`"
                " on Linux or macOS, in WSL or in a container, and use quivermq.connect(url) here"
            )

    def create(self, path: Path, *, is_private: bool = False, is_program: bool = False) -> SystemFile:
        try:
            # A new file under the old name, because somebody may have the old one mapped.
            path.unlink(missing_ok=True)
            mode = _PROGRAM_MODE if is_program else self._mode_in(path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            return SystemFile(path, flags, _PRIVATE_MODE if is_private else mode)
        except OSError as error:
            raise _write_error(error, path, 0) from error

    def open(self, path: Path, *, writable: bool = False) -> SystemFile:
        try:
            return SystemFile(path, os.O_RDWR if writable else os.O_RDONLY)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failure("open", path, error) from error

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _failure("list", directory, error) from error

    def is_directory(self, path: Path) -> bool:
        mode = _mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def exists(self, path: Path) -> bool:
        return _mode(path) is not None

    def mark(self, path: Path) -> FileMark:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failure("look at", path, error) from error
        if not stat.S_ISREG(found.st_mode):
            raise _not_regular(path)
        # The time of the last change is the file system's alone to set, unlike that of the last write.
        text = f"{found.st_dev:x}-{found.st_ino:x}-{found.st_size:x}-{found.st_ctime_ns:x}"
        return FileMark(found.st_size, found.st_ctime_ns // 1000, text)

    def make_directory(self, path: Path) -> None:
        if self.is_directory(path):
            # An empty one may be what an interrupted call left: made, but not durable yet.
            if _is_empty(path):
                self.sync_directory(path.parent)
            return
        self.make_directory(path.parent)
        try:
            path.mkdir(self._directory_mode_in(path.parent), exist_ok=True)
        except OSError as error:
            raise _write_error(error, path, 0) from error
        self.sync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise _write_error(error, target, 0) from error

    def remove(self, path: Path) -> None:
        try:
            path.unlink()
        except OSError as error:
            raise _write_error(error, path, 0) from error

    def remove_directory(self, path: Path) -> None:
        try:
            path.rmdir()
        except OSError as error:
            raise _write_error(error, path, 0) from error

    def free_bytes(self, path: Path) -> int:
        try:
            room = os.statvfs(path)
        except OSError as error:
            raise _failure("look at", path, error) from error
        return room.f_bavail * room.f_frsize

    def sync_directory(self, directory: Path) -> None:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _refusal(error, directory) or _sync_error(error, directory) from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _sync_error(error, directory) from error
        finally:
            os.close(descriptor)

    def lock(self, path: Path, *, with_directory: bool = False) -> SystemLock:
        return SystemLock(path, with_directory=with_directory)

    def _mode_in(self, directory: Path) -> int:
        return _file_mode(directory)

    def _directory_mode_in(self, directory: Path) -> int:
        return _GROUP_DIRECTORY if _is_for_group(directory) else _PRIVATE_DIRECTORY


class OutputDisk(SystemDisk):
    """The same for what a user asked for by name, such as an export: the umask says who may read it."""

    def _mode_in(self, _: Path) -> int:
        return _ORDINARY_MODE

    def _directory_mode_in(self, _: Path) -> int:
        return _ORDINARY_DIRECTORY


def ordered(disk: Disk, act: Callable[[], Answer]) -> Answer:
    """Do something that nobody is told of: see `Commits.ordered`. On a local disk every sync waits."""
    return act() if disk.commits is None else disk.commits.ordered(act)


def file_size(disk: Disk, path: Path) -> int:
    """How long a file is. Raises FileNotFoundError."""
    with closing(disk.open(path)) as file:
        return file.size()


def read_file(disk: Disk, path: Path, *, bytes_max: int) -> bytes:
    """All of a small file. Raises FileNotFoundError, and StorageFailed when it is not small."""
    with closing(disk.open(path)) as file:
        if (size := file.size()) > bytes_max:
            raise StorageFailed(f"{path} has {size} bytes, at most {bytes_max} belong there", path=path)
        return file.read(0, size)


def replace_file(disk: Disk, path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Put `data` in place of the whole file, durably: afterwards it is there, before that the old one."""
    new = _temporary(path)
    with closing(disk.create(new, is_private=is_private)) as file:
        file.append([data])
        file.sync()
    disk.rename(new, path)
    disk.sync_directory(path.parent)


def _temporary(path: Path) -> Path:
    """Another name beside a file, always the same, so that what a crash leaves there is replaced too."""
    name = os.fsencode(path.name) + b".new"
    if len(name) > _NAME_BYTES_MAX:
        name = hashlib.sha256(name).hexdigest().encode() + b".new"
    return path.with_name(os.fsdecode(name))


def remove_tree(disk: Disk, path: Path) -> None:
    """Take away a directory and everything below it, if it is there."""
    if not disk.is_directory(path):
        return
    for name in disk.names(path):
        below = path / name
        if disk.is_directory(below):
            remove_tree(disk, below)
        else:
            disk.remove(below)
    disk.remove_directory(path)
    disk.sync_directory(path.parent)


def real_path(path: Path) -> Path:
    """Where a path leads. Not `Path.resolve`, which raises a RuntimeError where links run in a circle."""
    return Path(os.path.realpath(path))


def _is_empty(directory: Path) -> bool:
    """Whether a directory has no names. Not by listing it: that of all topics may have thousands."""
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is None
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise _failure("list", directory, error) from error


def leads_away(directory: Path, name: str) -> bool:
    """Whether a link on the way from a directory down to `name` may lead to somewhere else."""
    path = os.fspath(directory)
    for part in name.split("/"):
        path = f"{path}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return True
        except FileNotFoundError:
            # Nor is there anything below it.
            return False
        except OSError:
            return True
    return False


def _file_mode(directory: Path) -> int:
    return _GROUP_MODE if _is_for_group(directory) else _PRIVATE_MODE


def _is_for_group(directory: Path) -> bool:
    """Whether somebody gave a directory to a group: 2750, so that what is made in it is the group's, too.

    Only then may the group read what is made there. A directory that is open to others as well, or without
    the bit, is just what a umask left, and says nothing of the messages in it.
    """
    try:
        return os.stat(directory).st_mode & _AUDIENCE == _FOR_GROUP
    except OSError:
        return False


def _open_regular(path: Path, flags: int, mode: int = _PRIVATE_MODE) -> int:
    """A descriptor of a regular file. Raises OSError, and StorageFailed for anything else."""
    try:
        # Not blocking, because a pipe would wait here for its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except FileNotFoundError:
        raise
    except OSError as error:
        if _is_special(path):
            raise _not_regular(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_regular(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_special(path: Path) -> bool:
    """Whether something is there that is no regular file; only for the words of an error."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _not_regular(path: Path) -> StorageFailed:
    return StorageFailed(f"{path} is not a regular file: move it out of the directory", path=path)


def _mode(path: Path) -> int | None:
    """What the path leads to; None when it leads nowhere."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None  # A ValueError says that no path can be called so.
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise _failure("look at", path, error) from error


def _failure(act: str, path: Path, error: OSError) -> DiskRefused | StorageFailed:
    return _refusal(error, path) or StorageFailed(f"cannot {act} {path}: {error.strerror}", path=path)


def _refusal(error: OSError, path: Path) -> DiskRefused | None:
    """The error for what may succeed later; None when it will not."""
    advice = _ADVICE.get(error.errno or 0)
    if advice is None:
        return None
    return DiskRefused(f"{path} cannot be used now: {error.strerror}; {advice}", path=path)


def _sync_error(error: OSError, path: Path) -> FsyncFailed:
    return FsyncFailed(f"cannot sync {path}: {error.strerror}", path=path)


def _write_error(error: OSError, path: Path, needed_bytes: int) -> DiskRefused | StorageFailed:
    if error.errno in _NO_SPACE:
        return DiskFull(path, needed_bytes=needed_bytes)
    return _failure("write", path, error)
