"""A data directory: its lock, and the logs that lie in it.

A log is any directory with a segment in it; its name is its path below the data directory.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Self

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Disk, SystemDisk, leads_away, real_path, remove_tree
from quivermq.errors import (
    Closing,
    DiskRefused,
    InvalidName,
    InvalidRequest,
    NotFound,
    QuiverError,
)
from quivermq.log.flusher import Flusher, Scheduler
from quivermq.log.log import Log
from quivermq.log.open_files import OpenFiles, files_allowed
from quivermq.log.opening import base_offsets
from quivermq.log.picture import Picture
from quivermq.log.reader import LogFollower
from quivermq.metrics import Histogram
from quivermq.segment.recovery import QUARANTINE
from quivermq.settings import StorageSettings

LOCK_NAME = "LOCK"
# What a queue knows of topics that are not open: it holds only while nobody changes their logs.
CATALOG_NAME = "catalog"

# As long as a file system lets a name be: what may be called how is for the layers above to say.
_PART = re.compile(r"[A-Za-z0-9._-]{1,255}")
_PARTS_MAX = 16
_NAME_CHARACTERS_MAX = 1024


class DataDirectory:
    """Holds the lock of a data directory, so that one process writes to it, and opens its logs.

    Raises DirectoryLocked with the other process's id, and InvalidRequest inside of another data
    directory: two locks must not guard one log. Reading beside a writer needs no lock: see `LogFollower`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: StorageSettings | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
        sync_time: Histogram | None = None,
        files_max: int | None = None,
    ) -> None:
        self.path = Path(path)
        self.settings = settings or StorageSettings()
        self._files = OpenFiles(disk or SystemDisk(), files_max or files_allowed())
        self.disk: Disk = self._files
        self._clock = clock or SystemClock()
        self._sync_time = sync_time
        self._check_above()
        self.disk.make_directory(self.path)
        self._lock = self.disk.lock(self.path / LOCK_NAME, with_directory=True)
        try:
            # Again, because only now an opener of a directory above sees this lock.
            self._check_above()
        except BaseException:
            self._lock.release()
            raise
        self._scheduler = scheduler or Flusher(self._clock)
        self._logs: dict[str, Log] = {}
        self._unlocked: set[str] = set()
        self._opening = threading.Lock()
        self._is_closed = False
        self._pid = os.getpid()

    def log(self, name: str, settings: StorageSettings | None = None, *, is_state: bool = False) -> Log:
        """The log of that name, created when it is new; `settings` are its own, if it has any.

        One of which every record `is_state` does not open when some are missing.

        Raises InvalidName, InvalidRequest inside of another data directory, and Closing after `close`.
        """
        check_log_name(name)
        if self._pid != os.getpid():
            raise Closing(f"{self.path} was opened before the fork: open it in the child")
        with self._opening:
            if self._is_closed:
                raise Closing(f"{self.path} was closed")
            if name not in self._logs or self._logs[name].is_closed:
                self._check_between(name)
                self._logs[name] = Log(
                    self.path / name,
                    settings or self.settings,
                    disk=self.disk,
                    clock=self._clock,
                    scheduler=self._scheduler,
                    sync_time=self._sync_time,
                    is_state=is_state,
                )
            return self._logs[name]

    @property
    def is_fenced(self) -> bool:
        """Whether a log has failed, and takes nothing any more. Looked at without waiting for anybody."""
        failures = (log.failure for log in list(self._logs.values()))
        return any(failure is not None and not isinstance(failure, Closing) for failure in failures)

    def remove(self, name: str) -> None:
        """Close the logs at and below that name, and take their files away."""
        check_log_name(name)
        with self._opening:
            for other in [n for n in self._logs if n == name or n.startswith(f"{name}/")]:
                self._logs.pop(other).close()
            remove_tree(self.disk, self.path / name)

    def release(self, name: str) -> None:
        """Close a log that is not needed for a while; `log` opens it again."""
        with self._opening:
            if name in self._logs:
                self._logs.pop(name).close()

    @contextmanager
    def picture(self) -> Iterator[Picture]:
        """All files as they are at one moment, to be read until the end of the block, while others go on.

        Everything that any log has acknowledged before is there. Raises Conflict while there is another
        picture, and what keeps a log from writing what it has buffered.
        """
        for log in list(self._logs.values()):
            _flush(log)
        with self._files.picture(self.path, self._clock.now_us()) as picture:
            commits = self._files.commits
            if commits is not None:
                # Nothing may be kept that the owner of the truth could still lose.
                commits.commit(commits.ticket())
            yield picture

    def announce(self, url: str) -> None:
        """Tell whoever finds the directory locked where it is served."""
        file = self.disk.open(self.path / LOCK_NAME, writable=True)
        try:
            # Behind the number of the process, until the next one takes the lock.
            file.append([f"{url}\n".encode()])
        finally:
            file.close()

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Close every log, then let go of the lock. Closing twice is allowed.

        Every log is closed, also when one fails; then the first failure is raised. While a log cannot
        write what it has buffered, the lock is kept, and `close` can be called again. `last` is called when
        all are closed, and none has failed: it may open some again, to write what relies on that.
        """
        if self._pid != os.getpid():
            return
        with self._opening:
            failures = [failure for log in self._logs.values() if (failure := _close(log))]
        if last is not None and not failures and not self._is_closed:
            last()
        with self._opening:
            failures += [failure for log in self._logs.values() if (failure := _close(log))]
            self._is_closed = not any(isinstance(failure, DiskRefused) for failure in failures)
        if self._is_closed:
            self._scheduler.close()
            self._lock.release()
        if failures:
            raise failures[0]

    def _check_above(self) -> None:
        _check_unlocked(self.disk, self.path, real_path(self.path).parents)

    def _check_between(self, name: str) -> None:
        """Refuse a log that somebody else's lock guards too, also when links lead there."""
        path = self.path / name
        if not leads_away(self.path, name):
            # By far the most, and thousands of them after a crash. Nobody gets a lock below ours, so
            # whatever was found without one needs no second look.
            parts = name.split("/")[:-1]
            for above in accumulate(parts, "{}/{}".format):
                if above not in self._unlocked:
                    _check_unlocked(self.disk, path, [self.path / above])
                    self._unlocked.add(above)
            return
        own = real_path(self.path)
        between = {real_path(self.path / part) for part in Path(name).parents}
        foreign = between.union(real_path(path).parents) - {own, *own.parents}
        _check_unlocked(self.disk, path, sorted(foreign))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _flush(log: Log) -> None:
    try:
        log.flush()
    except QuiverError:
        # One that has failed, or was closed meanwhile, has nothing more to write.
        if log.failure is None:
            raise


def _close(log: Log) -> QuiverError | None:
    try:
        log.close()
    except QuiverError as error:
        return error
    return None


def follow(path: str | os.PathLike[str], name: str, settings: StorageSettings | None = None) -> LogFollower:
    """The log of that name, for reading beside whoever writes to it."""
    check_log_name(name)
    check_exists(SystemDisk(), Path(path))
    return LogFollower(Path(path) / name, settings or StorageSettings())


def check_log_name(name: str) -> None:
    """A name may lead down, part by part, never up or out: it becomes a path."""
    parts = name.split("/")
    if len(name) > _NAME_CHARACTERS_MAX or len(parts) > _PARTS_MAX:
        raise InvalidName(
            f"{name[:64]!r}… cannot name a log: use at most {_PARTS_MAX} parts"
            f" and {_NAME_CHARACTERS_MAX} characters"
        )
    if not all(_PART.fullmatch(part) and part.strip(".") for part in parts):
        raise InvalidName(
            f"{name!r} cannot name a log: use parts of [A-Za-z0-9._-], at most 255 long, joined by /"
        )


def _check_unlocked(disk: Disk, path: Path, directories: Iterable[Path]) -> None:
    for directory in directories:
        if _has_lock(disk, directory):
            raise InvalidRequest(
                f"{path} lies inside of the data directory {directory}: open it from there,"
                " or use a directory elsewhere"
            )


def _has_lock(disk: Disk, directory: Path) -> bool:
    """Whether somebody has ever opened this as a data directory. A log may be called LOCK as well."""
    path = directory / LOCK_NAME
    return disk.exists(path) and not disk.is_directory(path)


@contextmanager
def locked(disk: Disk, path: Path) -> Iterator[None]:
    """Hold every lock that somebody who writes at, above or below a path would hold.

    Raises DirectoryLocked. Where there is no lock at all, the path gets its own.
    """
    # Real paths: a link must not lead around the lock of what it points to.
    below = {real_path(directory) for directory in _directories(disk, path)}
    directories = below.union(*(directory.parents for directory in below))
    guards = [d / LOCK_NAME for d in sorted(directories) if _has_lock(disk, d)]
    with ExitStack() as held:
        for guard in guards or [path / LOCK_NAME]:
            held.callback(disk.lock(guard, with_directory=True).release)
        yield


def check_exists(disk: Disk, path: Path) -> None:
    """Raise NotFound for a directory that is not there: looking must not create it."""
    if not disk.is_directory(path):
        raise NotFound(f"there is no directory {path}")


def find_logs(disk: Disk, path: Path) -> Iterator[Path]:
    """Every log at or below a path, in order."""
    for directory in _directories(disk, path):
        if base_offsets(disk, directory):
            yield directory


def _directories(disk: Disk, path: Path, seen: set[Path] | None = None) -> Iterator[Path]:
    """A directory and all below it but the quarantines. Links are followed, each to a place only once."""
    seen = set() if seen is None else seen
    real = real_path(path)
    if real in seen:
        return
    seen.add(real)
    yield path
    for name in disk.names(path):
        if name != QUARANTINE and disk.is_directory(path / name):
            yield from _directories(disk, path / name, seen)
