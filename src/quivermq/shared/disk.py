"""The disk that a queue writes to when its truth is in an object store.

Every change is made in a directory of this machine, the cache, and noted for the store, both under one
lock, so that the store learns of all changes in the order in which they were made. Reading is the cache's,
but for files that it does not have any more. Nothing is synced there: what counts is committed.

Whoever makes the disk anew from the store therefore sees everything up to some moment, nothing behind it,
and all that was ever synced: for the queue that is a power cut, on a disk that keeps everything in order.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Buffer, Disk, File, FileMark, Lock, SystemDisk, Ticket
from quivermq.errors import DiskFull, NotOwner, QuiverError, StorageFailed
from quivermq.metrics import Histogram
from quivermq.shared.blocks import Blocks
from quivermq.shared.cache import Cache
from quivermq.shared.checkpointer import Checkpointer
from quivermq.shared.chunk import Kind, Mutation, path_below
from quivermq.shared.chunks import Chunks
from quivermq.shared.committer import Committed, Committer
from quivermq.shared.figures import CommitCounter, SharedFigures
from quivermq.shared.limits import SharedLimits
from quivermq.shared.ordering import Ordering
from quivermq.shared.rebuilding import Rebuilding
from quivermq.shared.tree import FileNode

# What changes no name.
_CONTENTS = (Kind.APPEND, Kind.REWRITE, Kind.TRUNCATE)


class CacheDisk(SystemDisk):
    """The disk of this machine as a cache: a power cut may have all of it."""

    def sync_directory(self, directory: Path) -> None:
        """The cache is made anew after a crash, whatever is left of it."""


class SharedFile:
    """A file of a shared disk that is open for writing."""

    def __init__(self, disk: "SharedDisk", file: File, node: FileNode) -> None:
        self.path = file.path
        self._disk = disk
        self._file = file
        self._node = node
        self._is_open = True

    def size(self) -> int:
        return self._file.size()

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        self._disk.append(self._file, self._node, data)
        return len(data)

    def rewrite(self, position: int, data: Buffer) -> None:
        self._disk.rewrite(self._file, self._node, position, bytes(data))

    def read(self, position: int, length: int) -> bytes:
        return self._file.read(position, length)

    def map(self, length: int) -> memoryview:
        return self._file.map(length)

    def truncate(self, size: int) -> None:
        self._disk.truncate(self._file, self._node, size)

    def sync(self) -> None:
        self._disk.commits.commit(self._node.ticket)

    def close(self) -> None:
        is_open, self._is_open = self._is_open, False
        if is_open:
            self._disk.let_go(self._node)
        self._file.close()


class SharedDisk:
    """A disk over a cache and a store. Thread-safe. `root` is where the files are.

    Once somebody else is the owner every change raises NotOwner, and so does every sync that still has
    something to commit; reading goes on. A store that cannot be reached makes syncs wait, then raise
    StoreUnreachable, and appends StoreBehind: neither is a failed sync, and all goes on when it answers.

    Files outside of the root, and lock files, are this machine's own.
    """

    def __init__(
        self,
        chunks: Chunks,
        rebuilt: Rebuilding,
        *,
        cache: Disk,
        root: Path,
        blocks: Blocks,
        lock: Lock,
        limits: SharedLimits | None = None,
        clock: Clock | None = None,
        part_names: Sequence[str] = (),
    ) -> None:
        self.root = root
        self._prefix = f"{root}/"
        self._chunks = chunks
        self._cache_disk = cache
        self._cache_lock = lock
        self._tree = rebuilt.tree
        self._limits = limits or SharedLimits()
        self._pid = os.getpid()
        self._commit_counter = CommitCounter()
        # The last change of a name, wherever that was.
        self._names_ticket: Ticket = 0
        clock = self._clock = clock or SystemClock()
        self._opened_s = clock.monotonic()
        self._first_number = rebuilt.number
        start = Committed(0, rebuilt.number, rebuilt.chain)
        self._committer = Committer(chunks, start, self._limits, clock=clock, on_commit=self._count)
        self._cache = Cache(
            *(cache, root, self._tree, blocks), limits=self._limits, changed=self._committer.changed
        )
        self._checkpointer = Checkpointer(
            chunks,
            self._committer,
            self._tree,
            disk=cache,
            root=root,
            limits=self._limits,
            clock=clock,
            claims=rebuilt.claims,
            part_names=part_names,
            number=rebuilt.base,
            cache=self._cache,
        )
        self._lock = self._committer.changed.lock
        self.commits = Ordering(self._committer, root)

    @property
    def failure(self) -> QuiverError | None:
        """Why nothing can be changed any more, NotOwner for instance; None while everything can."""
        return self._committer.failure

    @property
    def epoch(self) -> int:
        """The number of this owner's claim."""
        return self._chunks.epoch

    @property
    def uncommitted_bytes(self) -> int:
        """How far the store is behind."""
        return self._committer.uncommitted_bytes

    @property
    def commit_count(self) -> int:
        """How many chunks were committed since it was opened."""
        return self._committer.committed.number - self._first_number

    def sync_directory(self, directory: Path) -> None:  # noqa: ARG002 - There is one order for all.
        self.commits.commit(self._names_ticket)

    def figures(self) -> SharedFigures:
        """How it is now. Nobody is asked, and nobody waits."""
        failure, trouble = self.failure, self._committer.trouble
        checkpoint = self._checkpointer.figures()
        return SharedFigures(
            epoch=self.epoch,
            failure=None if failure is None else failure.code,
            trouble=None if trouble is None else trouble.code,
            uncommitted_bytes=self.uncommitted_bytes,
            replay_chunks=self._committer.committed.number - (checkpoint.number or 0),
            seconds=self._clock.monotonic() - self._opened_s,
            commits=self._commit_counter.figures(),
            checkpoint=checkpoint,
            cache=self._cache.figures(),
            requests=self._chunks.requests,
        )

    @property
    def commit_times(self) -> Histogram:
        """How long each commit took."""
        return self._commit_counter.times

    # Files.

    def create(self, path: Path, *, is_private: bool = False) -> File:
        name = path_below(self.root, path)
        if name is None:
            return self._cache_disk.create(path, is_private=is_private)
        with self._lock, self._whole(path):
            self._before_unlink(name)
            file = self._created(path, is_private)
            node = self._tree.create(name, is_private=is_private)
            node.writers = 1
            self._note(Mutation(Kind.CREATE, name, int(is_private)), node)
        return SharedFile(self, file, node)

    def _created(self, path: Path, is_private: bool) -> File:
        try:
            return self._cache_disk.create(path, is_private=is_private)
        except DiskFull:
            if not self._cache.make_room(1):
                raise
        return self._cache_disk.create(path, is_private=is_private)

    def open(self, path: Path, *, writable: bool = False) -> File:
        return self._opened_for_writing(path) if writable else self._opened(path)

    def _opened(self, path: Path) -> File:
        node = self._node(path)
        if node is not None:
            self._cache.use(node)
        # Without the lock: whoever reads does not wait for writers.
        with suppress(FileNotFoundError):
            return self._cache_disk.open(path)
        with self._lock:
            node = self._node(path)
            if node is not None and node.is_evicted:
                return self._cache.open_remote(path, node)
            return self._cache_disk.open(path)

    def _opened_for_writing(self, path: Path) -> File:
        while True:
            with self._lock:
                node = self._node(path)
                if node is None:
                    return self._cache_disk.open(path, writable=True)
                self._cache.use(node)
                if not node.is_evicted:
                    file = SharedFile(self, self._cache_disk.open(path, writable=True), node)
                    node.writers += 1
                    return file
            self._cache.bring_back(node)

    def _node(self, path: Path) -> FileNode | None:
        # Not `path_below`, which takes longer than opening a file does.
        name = str(path)
        return self._tree.files.get(name[len(self._prefix) :]) if name.startswith(self._prefix) else None

    def let_go(self, node: FileNode) -> None:
        """A file is not open for writing any more."""
        with self._lock:
            node.writers -= 1

    def append(self, file: File, node: FileNode, data: bytes) -> None:
        """What `SharedFile.append` does: all of it, or on an error nothing."""
        with self._lock:
            self._check()
            self._committer.wait_for_room(len(data), file.path, is_admitted=self.commits.is_waiting_later)
            start, end = node.size, node.size + len(data)
            before = self._committer.last
            try:
                self._append_to_cache(file, data, start)
                self._note_append(node, data)
            except BaseException:
                # Also when interrupted: either it is in the cache and will be in the store, or in neither.
                if self._committer.last == before:
                    end = start
                    self._cut_back(file, start)
                raise
            finally:
                node.size = end

    def _append_to_cache(self, file: File, data: bytes, size: int) -> None:
        try:
            file.append((data,))
        except DiskFull:
            if not self._cache.make_room(len(data)):
                raise
            file.truncate(size)
            file.append((data,))

    def _cut_back(self, file: File, size: int) -> None:
        try:
            file.truncate(size)
        except QuiverError:
            self._committer.fail(
                StorageFailed(f"{file.path} is longer than the store will know: open anew", path=file.path)
            )
            raise

    def _note_append(self, node: FileNode, data: bytes) -> None:
        if node.path is None:
            return
        step = self._limits.chunk_bytes_max
        for start in range(0, len(data), step):
            piece = data if len(data) <= step else data[start : start + step]
            self._note(Mutation(Kind.APPEND, node.path, node.size + start, "", piece), node)

    def rewrite(self, file: File, node: FileNode, position: int, data: bytes) -> None:
        """What `SharedFile.rewrite` does."""
        with self._lock:
            self._check()
            self._committer.wait_for_room(len(data), file.path, is_admitted=self.commits.is_waiting_later)
        with self._lock, self._whole(file.path):
            self._checkpointer.before_cut(node)
            file.rewrite(position, data)
            node.cut(position)
            if node.path is not None:
                self._note(Mutation(Kind.REWRITE, node.path, position, "", data), node)

    def truncate(self, file: File, node: FileNode, size: int) -> None:
        """What `SharedFile.truncate` does."""
        with self._lock, self._whole(file.path):
            if size > node.size:
                # The operating system would fill it up; nobody asks for that, and no chunk says it.
                raise StorageFailed(f"{file.path} has only {node.size} bytes, not {size}", path=file.path)
            self._checkpointer.before_cut(node)
            file.truncate(size)
            node.size = size
            node.cut(size)
            if node.path is not None:
                self._note(Mutation(Kind.TRUNCATE, node.path, size), node)

    # Names.

    def names(self, directory: Path) -> list[str]:
        with self._lock:
            below = "" if directory == self.root else path_below(self.root, directory)
            evicted = set() if below is None else self._tree.evicted_names(below)
            names = self._cache_disk.names(directory)
            return sorted(evicted.union(names)) if evicted else names

    def is_directory(self, path: Path) -> bool:
        return self._cache_disk.is_directory(path)

    def exists(self, path: Path) -> bool:
        # In the tree, but not in the cache: one that is only in the store.
        return self._cache_disk.exists(path) or self._node(path) is not None

    def mark(self, path: Path) -> FileMark:
        """What is stored of a file, if that is all: parts never change, and no name is used twice."""
        with self._lock:
            node = self._node(path)
            if node is None:
                raise FileNotFoundError(path)
            text = " ".join(part.name for part in node.parts) if node.stored_bytes == node.size else ""
            return FileMark(node.size, 0, text)

    def make_directory(self, path: Path) -> None:
        with self._lock:
            self._make_directory(path)
        # Also when it was there: an interrupted call may have made it, and not have committed it.
        self.commits.commit(self._names_ticket)

    def _make_directory(self, path: Path) -> None:
        name = path_below(self.root, path)
        if name is None or name in self._tree.directories:
            self._cache_disk.make_directory(path)
            return
        self._make_directory(path.parent)
        with self._whole(path):
            self._cache.make_directory(path, name)
            self._tree.directories.add(name)
            self._note(Mutation(Kind.MAKE_DIRECTORY, name))

    def rename(self, source: Path, target: Path) -> None:
        old, new = path_below(self.root, source), path_below(self.root, target)
        if old is None or new is None:
            if old is not new:
                raise StorageFailed(f"{source} cannot leave or enter {self.root}", path=source)
            self._cache_disk.rename(source, target)
            return
        with self._lock, self._whole(target):
            if old not in self._tree.files and old not in self._tree.directories:
                raise StorageFailed(f"cannot write {target}: {source} is not there", path=target)
            if old != new:
                self._before_unlink(new)
            self._cache.move(source, old, target, new)
            self._tree.move(old, new)
            self._note(Mutation(Kind.RENAME, old, 0, new), self._tree.files.get(new))

    def remove(self, path: Path) -> None:
        with self._lock:
            name = path_below(self.root, path)
            if name is None or name not in self._tree.files:
                self._cache_disk.remove(path)
                return
            with self._whole(path):
                self._before_unlink(name)
                self._cache.remove(path, self._tree.files[name])
                self._tree.remove(name)
                self._note(Mutation(Kind.REMOVE, name))

    def remove_directory(self, path: Path) -> None:
        with self._lock:
            name = path_below(self.root, path)
            if name is None or name not in self._tree.directories:
                self._cache_disk.remove_directory(path)
                return
            with self._whole(path):
                self._cache.remove_directory(path, name)
                self._tree.directories.remove(name)
                self._note(Mutation(Kind.REMOVE_DIRECTORY, name))

    def free_bytes(self, path: Path) -> int:
        free = self._cache_disk.free_bytes(path)
        if free < self._limits.cache_free_bytes_min and self._cache.make_room():
            free = self._cache_disk.free_bytes(path)
        return free

    def lock(self, path: Path, *, with_directory: bool = False) -> Lock:
        return self._cache_disk.lock(path, with_directory=with_directory)

    # The end.

    def checkpoint(self) -> bool:
        """Make a checkpoint now; False when files were cut meanwhile. Raises what the store raises."""
        return self._checkpointer.make()

    def clean(self) -> None:
        """Take away what the latest checkpoint has made needless, as far as that is safe by now."""
        self._checkpointer.clean()

    def fence(self, reason: str) -> None:
        """Let nothing be changed or committed any more: somebody else may be the owner."""
        self._committer.fail(NotOwner(reason))

    def close(self) -> None:
        """Commit what was done, and let go of the store and the cache. Closing twice is allowed.

        Quiet where nothing can be committed any more. Raises StoreUnreachable when the store does not
        answer; everything is let go of all the same.
        """
        if self._pid != os.getpid():
            return
        try:
            if self._committer.failure is None:
                self._committer.commit(self._committer.last)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything as it is. What is not committed is lost."""
        # In this order, because a checkpoint waits for commits.
        self._committer.close()
        self._checkpointer.close()
        # Nobody is helped by a store that does not let go in order: its next owner takes it.
        with suppress(QuiverError):
            self._chunks.close()
        self._cache_lock.release()

    def _check(self) -> None:
        self.commits.check_process()
        self._committer.check_usable()

    @contextmanager
    def _whole(self, path: Path) -> Iterator[None]:
        """A change that the cache refuses, or that is made there and noted; nothing between the two.

        An exception of a signal handler may strike there. Then the cache is ahead of what the store will
        ever learn, and has to be made anew.
        """
        self._check()
        try:
            yield
        except (QuiverError, FileNotFoundError):
            raise
        except BaseException:
            self._committer.fail(
                StorageFailed(f"a change of {path} was interrupted: open the queue anew", path=path)
            )
            raise

    def _note(self, mutation: Mutation, node: FileNode | None = None) -> None:
        self._committer.note(mutation)
        ticket = self._committer.last
        if node is not None:
            node.ticket = ticket
        if mutation.kind not in _CONTENTS:
            self._names_ticket = ticket

    def _before_unlink(self, name: str) -> None:
        node = self._tree.files.get(name)
        if node is not None:
            self._checkpointer.before_unlink(node)

    def _count(self, chunk_bytes: int, seconds: float) -> None:
        self._commit_counter.add(chunk_bytes, seconds)
        self._checkpointer.count(chunk_bytes)
