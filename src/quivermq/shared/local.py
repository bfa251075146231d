"""Objects in a directory of this machine, durable once they are put: for backups, with no other package.

An object is a file below the directory, made under another name and renamed when it is whole and synced.
One process at a time may put; whoever only reads needs nothing.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from quivermq.disk import Disk, Lock, SystemDisk, file_size, read_file, replace_file
from quivermq.errors import StorageFailed
from quivermq.shared.chunk import damaged

LOCK_NAME = "LOCK"
# What `replace_file` calls a file that is not whole yet.
_UNFINISHED = ".new"


class DirectoryStore:
    """An `ObjectStore` in a directory, which is made with the first object. Thread-safe for one putter.

    The first put takes a lock, until `close` or the end of the process: raises DirectoryLocked.
    """

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.url = str(root)
        self._root = root
        self._disk = disk or SystemDisk()
        self._lock: Lock | None = None

    def put(self, name: str, data: bytes) -> None:
        self._hold()
        path = self._root / name
        self._disk.make_directory(path.parent)
        replace_file(self._disk, path, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        # Nobody else puts meanwhile.
        self._hold()
        if self._disk.exists(self._root / name):
            return False
        self.put(name, data)
        return True

    def get(self, name: str, bytes_max: int) -> bytes | None:
        path = self._root / name
        try:
            return read_file(self._disk, path, bytes_max=bytes_max)
        except FileNotFoundError:
            return None
        except StorageFailed as error:
            raise damaged(name, str(error)) from error

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        try:
            with closing(self._disk.open(self._root / name)) as file:
                return file.read(start, length)
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> list[str]:
        directory = prefix.rpartition("/")[0]
        below = f"{directory}/" if directory else ""
        found = self._below(self._root / directory, below)
        return sorted(name for name in found if name.startswith(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in self.names(prefix):
            # What was taken away since has none.
            with suppress(FileNotFoundError):
                found[name] = file_size(self._disk, self._root / name)
        return found

    def _below(self, directory: Path, prefix: str) -> Iterator[str]:
        for name in self._disk.names(directory):
            path = directory / name
            if self._disk.is_directory(path):
                yield from self._below(path, f"{prefix}{name}/")
            elif not name.endswith(_UNFINISHED) and prefix + name != LOCK_NAME:
                yield prefix + name

    def remove(self, names: Iterable[str]) -> None:
        changed = set()
        for name in names:
            path = self._root / name
            if self._disk.exists(path):
                self._disk.remove(path)
                changed.add(path.parent)
        for directory in sorted(changed):
            self._disk.sync_directory(directory)

    def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _hold(self) -> None:
        if self._lock is None:
            self._disk.make_directory(self._root)
            self._lock = self._disk.lock(self._root / LOCK_NAME)
