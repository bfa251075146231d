"""How many files are open for writing: a bounded cache of descriptors, shared by all logs of a directory.

A log holds its last segment and that one's index open, and most logs are not written to most of the
time. Here a file that somebody opened for writing may be closed when others need its descriptor, and is
opened again when it is next used. Nobody above notices.

No file is closed while it has bytes that were not synced. Linux reports an error of writing them back to
those who have the file open: closed first, it could go unreported, and a sync of the file opened again
would succeed and mean nothing. So it is synced before it is closed. Should that fail, whoever uses the file
next gets the error, as if it had synced itself, and fences its log.

Because all that is written goes through here, here a picture of one moment can be taken: names change only
with one lock held, bytes only with that of their file.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from pathlib import Path

from quivermq.disk import Buffer, Disk, File, Lock
from quivermq.errors import Conflict, DiskRefused, QuiverError, StorageFailed
from quivermq.log.picture import Picture, look_around

# More than anybody writes to at a time; the rest of what a process may have is for connections.
_FILES_MAX = 4096
_FILES_MIN = 16


def files_allowed() -> int:
    """How many files may be kept open: half of what the operating system lets this process have."""
    # Not on every system, and a client on one without it imports this as well.
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _FILES_MAX
    return max(_FILES_MIN, min(_FILES_MAX, soft // 2))


class OpenFiles:
    """A disk whose files for writing are open only as long as there are not too many of them. Thread-safe.

    Files for reading are passed through: whoever opens one closes it at once.
    """

    def __init__(self, disk: Disk, files_max: int) -> None:
        self._disk = disk
        self.commits = disk.commits
        self._files_max = files_max
        self._lock = threading.Lock()
        # The one that was opened last comes last.
        self._open: dict[CachedFile, None] = {}
        # Held while a name of a file changes, and while a picture is taken. It guards what follows.
        self._naming = threading.Lock()
        # Those that somebody writes to, also while they are closed for others.
        self._writable: set[CachedFile] = set()
        # Also looked at by whoever cuts a file, with that file's lock alone: see `picture`.
        self._picture: Picture | None = None

    @property
    def count(self) -> int:
        """How many are open now."""
        return len(self._open)

    def create(self, path: Path, *, is_private: bool = False) -> File:
        with self._naming:
            self._before_unlink(path)
            cached = self._cached(self._disk.create(path, is_private=is_private))
        self.admit(cached)
        return cached

    def open(self, path: Path, *, writable: bool = False) -> File:
        if not writable:
            return self._disk.open(path)
        with self._naming:
            cached = self._cached(self._disk.open(path, writable=True))
        self.admit(cached)
        return cached

    def _cached(self, file: File) -> "CachedFile":
        cached = CachedFile(self, file)
        self._writable.add(cached)
        if self._picture is not None:
            self._picture.note_writer(file.path)
        return cached

    def reopen(self, path: Path) -> File:
        """A file that was closed for others."""
        try:
            return self._disk.open(path, writable=True)
        except FileNotFoundError:
            raise StorageFailed(f"{path} was taken away while it was in use", path=path) from None

    def admit(self, file: "CachedFile") -> None:
        """Count a file that was opened, and close others when there are too many."""
        with self._lock:
            self._open[file] = None
            if len(self._open) <= self._files_max:
                return
            # Some more than need be, so that not every opening has to choose: of those that have nothing
            # to sync the ones that were not used since the last choice.
            others = [other for other in self._open if other is not file]
            others.sort(key=lambda other: (other.is_dirty, other.was_used))
            chosen = others[: 1 + self._files_max // 8]
            for other in others[len(chosen) :]:
                other.was_used = False
            for other in chosen:
                del self._open[other]
        # A sync may take a while: nobody else who opens a file waits for it.
        in_use = [other for other in chosen if not other.rest()]
        with self._lock:
            self._open.update((other, None) for other in in_use if other.is_open)

    def dismiss(self, file: "CachedFile") -> None:
        """Forget a file that is closed for good."""
        with self._lock:
            self._open.pop(file, None)

    def discard(self, file: "CachedFile") -> None:
        """Forget that somebody writes to a file: it is closed."""
        with self._naming:
            self._writable.discard(file)

    @contextmanager
    def picture(self, root: Path, now_us: int) -> Iterator[Picture]:
        """The files below a directory as they are at one moment, to be read until the end of the block.

        It is what a process finds that comes after this one was killed at that moment. Who creates,
        renames or removes a file waits while names are looked at; who writes, only while sizes are. One
        picture at a time: raises Conflict.
        """
        with self._naming:
            if self._picture is not None:
                raise Conflict(f"a picture of {root} is being read already: wait for the other backup")
            picture = look_around(self._disk, self._naming, root, now_us)
            self._note_sizes(picture)
        try:
            yield picture
        finally:
            with self._naming:
                self._picture = None
            picture.let_go()

    def _note_sizes(self, picture: Picture) -> None:
        """Let the sizes of all files that somebody writes to be those of one moment."""
        with ExitStack() as held:
            for file in self._writable:
                held.enter_context(file.held())
            for file in self._writable:
                picture.note_size(file.path, file.size_held())
            # Before anybody cuts a file again.
            self._picture = picture

    def before_cut(self, path: Path, position: int) -> None:
        """Bytes behind a position are about to change. With the lock of the file held."""
        picture = self._picture
        if picture is not None:
            picture.before_cut(path, position)

    def _before_unlink(self, path: Path) -> None:
        if self._picture is not None:
            self._picture.before_unlink(path)

    # All else is the disk's own.

    def names(self, directory: Path) -> list[str]:
        return self._disk.names(directory)

    def is_directory(self, path: Path) -> bool:
        return self._disk.is_directory(path)

    def exists(self, path: Path) -> bool:
        return self._disk.exists(path)

    def make_directory(self, path: Path) -> None:
        self._disk.make_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        with self._naming:
            self._before_unlink(source)
            self._before_unlink(target)
            self._disk.rename(source, target)

    def remove(self, path: Path) -> None:
        with self._naming:
            self._before_unlink(path)
            self._disk.remove(path)

    def remove_directory(self, path: Path) -> None:
        with self._naming:
            self._disk.remove_directory(path)

    def free_bytes(self, path: Path) -> int:
        return self._disk.free_bytes(path)

    def sync_directory(self, directory: Path) -> None:
        self._disk.sync_directory(directory)

    def lock(self, path: Path, *, with_directory: bool = False) -> Lock:
        return self._disk.lock(path, with_directory=with_directory)


class CachedFile:
    """A file that is opened again when it is used after it was closed for others.

    One thread writes at a time, and one syncs, as in a log; whoever closes it for others neither waits
    for them nor disturbs them.
    """

    __slots__ = (
        "_failure",
        "_file",
        "_files",
        "_is_closed",
        "_size",
        "_syncing",
        "_writing",
        "is_dirty",
        "path",
        "was_used",
    )

    def __init__(self, files: OpenFiles, file: File) -> None:
        self.path = file.path
        self.is_dirty = False
        """Whether something may not be synced."""
        self.was_used = True
        self._files = files
        self._file: File | None = file
        self._size = 0
        self._failure: QuiverError | None = None
        self._is_closed = False
        self._writing = threading.Lock()
        self._syncing = threading.Lock()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def size(self) -> int:
        with self._writing:
            return self._used().size()

    def append(self, buffers: Sequence[Buffer]) -> int:
        with self._writing:
            file = self._file or self._used()
            self.was_used = True
            try:
                return file.append(buffers)
            finally:
                # Only now: a sync that began before does not cover it, and nobody closes it meanwhile.
                self.is_dirty = True

    def rewrite(self, position: int, data: Buffer) -> None:
        with self._writing:
            # A picture may be read meanwhile: the bytes stay what they are.
            try:
                self._used().rewrite(position, data)
            finally:
                self.is_dirty = True

    def read(self, position: int, length: int) -> bytes:
        with self._writing:
            return self._used().read(position, length)

    def map(self, length: int) -> memoryview:
        with self._writing:
            return self._used().map(length)

    def truncate(self, size: int) -> None:
        with self._writing:
            self._files.before_cut(self.path, size)
            try:
                self._used().truncate(size)
            finally:
                self.is_dirty = True

    def sync(self) -> None:
        with self._syncing:
            self._check()
            file = self._file
            # One that is not open was synced before it was closed.
            if file is not None:
                self.is_dirty = False
                try:
                    file.sync()
                except BaseException:
                    self.is_dirty = True
                    raise

    def close(self) -> None:
        self._files.dismiss(self)
        with self._syncing, self._writing:
            self._is_closed = True
            file, self._file = self._file, None
            if file is not None:
                file.close()
        self._files.discard(self)

    def held(self) -> AbstractContextManager[object]:
        """Within it nobody writes to the file."""
        return self._writing

    def size_held(self) -> int | None:
        """The size of a file that is held; None when it is closed for good."""
        if self._is_closed:
            return None
        return self._size if self._file is None else self._file.size()

    def rest(self) -> bool:
        """Close the file until it is used again, synced. False when somebody is using it."""
        if not self._syncing.acquire(blocking=False):
            return False
        try:
            if not self._writing.acquire(blocking=False):
                return False
            try:
                self._rest()
            finally:
                self._writing.release()
        finally:
            self._syncing.release()
        return True

    def _rest(self) -> None:
        file = self._file
        if file is None:
            return
        try:
            if self.is_dirty:
                file.sync()
                self.is_dirty = False
            self._size = file.size()
        except QuiverError as error:
            self._failure = error
        self._file = None
        try:
            file.close()
        except QuiverError as error:
            self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure is not None:
            raise copy(self._failure)

    def _used(self) -> File:
        """The file, open. With `_writing` held, so that nobody closes it."""
        self.was_used = True
        file = self._file
        if file is None:
            assert not self._is_closed, f"{self.path} is closed"
            self._check()
            file = self._reopened()
            self._file = file
            self._files.admit(self)
        return file

    def _reopened(self) -> File:
        file = self._files.reopen(self.path)
        try:
            if (size := file.size()) != self._size:
                raise StorageFailed(
                    f"{self.path} was changed by somebody else: it had {self._size} bytes and has {size}",
                    path=self.path,
                )
        except (StorageFailed, DiskRefused):
            file.close()
            raise
        return file
