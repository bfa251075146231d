"""The files of a directory as they were at one moment, read while others go on writing: for backups.

What is appended lies behind the sizes of the picture. A file that loses its name is opened before, and read
all the same. Where bytes of the picture are cut off, or another process changes a file, the picture is
spoiled: another one has to be taken. `OpenFiles` takes pictures, and tells one of what happens meanwhile.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from quivermq.disk import Disk, File, FileMark, MarkingDisk, file_size, real_path
from quivermq.errors import QuiverError, StorageFailed

# What is of this machine alone: who holds the directory, and who changes its keys.
_LOCKS = ("LOCK", "keys.lock")
# File systems put it where they begin, for root alone.
_FOUND = "lost+found"
# Files without a name that are kept open to be read; each has a descriptor.
_HELD_MAX = 256
# A file that changed so shortly before may change again, and its mark be the same: clocks of file systems
# go in steps.
_SETTLED_US = 2_000_000


class Pictured(NamedTuple):
    """A file as it was at the moment of the picture."""

    size: int
    mark: str
    """Who finds the same mark later finds the same bytes; empty where nobody knows."""


class Spoiled(Exception):
    """The picture cannot be read to its end: take another one."""


class Picture:
    """Names and sizes of one moment. Thread-safe. `files` and `directories` are paths below `root`."""

    def __init__(self, disk: Disk, naming: threading.Lock, root: Path) -> None:
        self.root = root
        self.directories: list[str] = []
        self.files: dict[str, Pictured] = {}
        self._disk = disk
        # While it is held, no file gets or loses a name.
        self._naming = naming
        self._marks: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._written: set[str] = set()
        self._unread: set[str] = set()
        self._held: dict[str, File] = {}
        self._spoiled_by: str | None = None

    @contextmanager
    def reading(self, name: str) -> Iterator[File]:
        """A file, to be read up to its size. Raises Spoiled, also at the end: then nothing read counts."""
        with self._naming:
            self._check()
            file = self._held.pop(name, None)
            is_ours = file is not None or name in self._written
            if file is None:
                file = self._opened(name)
        try:
            yield file
        finally:
            file.close()
        with self._naming:
            self._check()
            if not is_ours and name not in self._written and name not in self._held:
                self._check_mark(name)
            self._forget(name)

    def forget(self, name: str) -> None:
        """The file need not be read. Raises Spoiled."""
        with self._naming:
            self._check()
            self._forget(name)

    def let_go(self) -> None:
        """Nothing of it is needed any more."""
        for name in list(self._held):
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._unread.discard(name)
        held = self._held.pop(name, None)
        if held is not None:
            held.close()

    def _opened(self, name: str) -> File:
        try:
            return self._disk.open(self.root / name)
        except FileNotFoundError:
            # Nobody here has removed it.
            raise Spoiled(f"another process has taken {name} away") from None

    def _check(self) -> None:
        if self._spoiled_by is not None:
            raise Spoiled(self._spoiled_by)

    def _check_mark(self, name: str) -> None:
        """Raise Spoiled when another process has changed a file that nobody here writes to."""
        if not isinstance(self._disk, MarkingDisk) or self._disk.commits is not None:
            # In memory, or with one owner and nobody else.
            return
        try:
            found = self._disk.mark(self.root / name).text
        except FileNotFoundError:
            found = ""
        if found != self._marks[name]:
            raise Spoiled(f"another process has changed {name}")

    # What happens to files, with the lock of names held; cutting with that of the file.

    def note_writer(self, path: Path) -> None:
        """Somebody writes to a file from now on."""
        name = self._names.get(os.fspath(path))
        if name is not None:
            self._written.add(name)

    def note_size(self, path: Path, size: int | None) -> None:
        """A file that somebody writes to has this size now; None when it is gone."""
        name = self._names.get(os.fspath(path))
        if name is not None and size is not None:
            self._written.add(name)
            if size != self.files[name].size:
                self.files[name] = Pictured(size, "")

    def before_unlink(self, path: Path) -> None:
        """A file is about to lose its name."""
        name = self._names.get(os.fspath(path))
        if name is None or name not in self._unread or name in self._held:
            return
        if len(self._held) >= _HELD_MAX:
            self._spoiled_by = f"more than {_HELD_MAX} files were removed before they were read"
            return
        try:
            self._held[name] = self._disk.open(path)
        except FileNotFoundError:
            self._spoiled_by = f"{name} was taken away"
        except QuiverError as error:
            # Whoever removes a file is not to suffer from a backup.
            self._spoiled_by = str(error)

    def before_cut(self, path: Path, position: int) -> None:
        """The bytes of a file behind a position are about to go."""
        name = self._names.get(os.fspath(path))
        if name is not None and name in self._unread and position < self.files[name].size:
            self._spoiled_by = f"{name} was shortened"

    # Taking it.

    def _look(self, directory: Path, name: str, now_us: int, seen: frozenset[Path]) -> None:
        real = real_path(directory)
        if real in seen:
            raise StorageFailed(f"{directory} leads back to a directory above it", path=directory)
        for each in self._disk.names(directory):
            path, below = directory / each, f"{name}{each}"
            if not name and (each in _LOCKS or each == _FOUND):
                continue
            if self._disk.is_directory(path):
                self.directories.append(below)
                self._look(path, f"{below}/", now_us, seen | {real})
            else:
                self._note_file(path, below, now_us)

    def _note_file(self, path: Path, name: str, now_us: int) -> None:
        try:
            if isinstance(self._disk, MarkingDisk):
                mark = self._disk.mark(path)
            else:
                mark = FileMark(file_size(self._disk, path), now_us, "")
        except FileNotFoundError:
            # Another process has taken it away: an instant later it would not have been there.
            return
        is_settled = mark.changed_us < now_us - _SETTLED_US
        self.files[name] = Pictured(mark.size, mark.text if is_settled else "")
        self._marks[name] = mark.text
        self._names[os.fspath(path)] = name
        self._unread.add(name)


def look_around(disk: Disk, naming: threading.Lock, root: Path, now_us: int) -> Picture:
    """All names below a directory, with the sizes of files as they are now. With the lock of names held."""
    picture = Picture(disk, naming, root)
    picture._look(root, "", now_us, frozenset())
    return picture
