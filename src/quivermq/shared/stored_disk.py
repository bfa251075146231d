"""A disk in a store, read beside its owner: no claim, no lock, no change, and nothing is copied to here.

It is as it was behind one chunk until `refresh` looks for more. What its owner has trimmed meanwhile is in
a newer checkpoint, which is then read in place of the chunks. Objects stay for a while after the last
checkpoint that named them; whoever reads one for longer goes on in the file of that name as it is now.

Chunks and checkpoints are checked as an owner checks them. Of objects that are files only some bytes are
fetched, whose checksums are those of the files themselves: frames, indexes, documents.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from quivermq.clock import Clock, SystemClock
from quivermq.disk import ENDLESS_BYTES, Buffer, File, Lock
from quivermq.errors import DamagedChunk, NotFound, NotOwner, StorageFailed, StoreUnreachable
from quivermq.shared.blocks import Blocks
from quivermq.shared.checkpoint import decode_checkpoint
from quivermq.shared.chunk import damaged
from quivermq.shared.chunks import ChunkSource
from quivermq.shared.limits import SharedLimits
from quivermq.shared.patience import patiently
from quivermq.shared.stored_files import Stored, StoredContent, StoredFiles, StoredRebuilding

# So often may the owner trim what is just being read.
_LOOKS_MAX = 100
# From so many bytes on, what chunks have brought is exchanged for a checkpoint that has it as objects.
_HELD_BYTES_MAX = 64 << 20


class StoredDisk:
    """A `Disk` that can only be read. Thread-safe. Its files are below `root`, a path of no machine.

    Raises NotFound where there is no queue, DamagedChunk, UnsupportedChunk and what stores raise. Whatever
    would change something raises NotOwner.
    """

    # Nothing becomes durable here: what can be seen is.
    commits = None

    def __init__(
        self,
        chunks: ChunkSource,
        root: Path,
        *,
        limits: SharedLimits | None = None,
        clock: Clock | None = None,
        held_bytes_max: int = _HELD_BYTES_MAX,
        name: str = "",
    ) -> None:
        self.root = root
        self.name = name or str(root)
        """What errors call it."""
        self.chunks = chunks
        self._limits = limits or SharedLimits()
        self._clock = clock or SystemClock()
        self._blocks = Blocks(chunks, self._limits, self._clock)
        self._held_bytes_max = held_bytes_max
        # What can be seen: replaced as a whole, or changed by one chunk at a time with the lock held.
        self._seen = StoredRebuilding(root)
        self._lock = threading.RLock()
        # One at a time looks for more; it guards what follows.
        self._refreshing = threading.RLock()
        # The checkpoint that it comes from; None before the first look.
        self._base: int | None = None
        self._held_bytes = 0

    @property
    def number(self) -> int:
        """The chunk that comes next: everything before it can be seen."""
        return self._seen.number

    def refresh(self) -> None:
        """See everything that is committed by now. After a DamagedChunk, what comes before it is seen."""
        patiently(self._refresh, self._limits, self._clock)

    def _refresh(self) -> None:
        with self._refreshing:
            if self._base is None:
                self._reload()
                return
            try:
                self._follow(self._seen)
            except DamagedChunk:
                if not self._has_newer_checkpoint():
                    raise
            else:
                if self._held_bytes <= self._held_bytes_max or not self._has_newer_checkpoint():
                    return
            self._reload()

    def _reload(self, end: int | None = None) -> None:
        """See what the latest checkpoint and the chunks behind it make, up to `end` if that is given."""
        for _ in range(_LOOKS_MAX):
            stored = self.chunks.checkpoint()
            seen, self._held_bytes = StoredRebuilding(self.root), 0
            if stored is not None:
                seen.load(decode_checkpoint(f"checkpoint {stored.number}", stored.data), ())
            base = seen.number
            try:
                self._follow(seen, end)
            except DamagedChunk:
                if self.chunks.checkpoint_number() > base:
                    continue
                self._see(seen, base)
                raise
            if not seen.number:
                raise NotFound(f"there is no queue in {self.name}")
            self._see(seen, base)
            return
        raise StoreUnreachable(f"{self.name} is trimmed faster than it can be read: try again")

    def _see(self, seen: StoredRebuilding, base: int) -> None:
        # Never less than before, as long as that was whole.
        with self._lock:
            if seen.is_whole and (seen.number >= self._seen.number or not self._seen.is_whole):
                self._seen, self._base = seen, base

    def _follow(self, seen: StoredRebuilding, end: int | None = None) -> None:
        for number, data in self.chunks.read(seen.number):
            if number == end:
                return
            with self._lock:
                try:
                    seen.apply(f"chunk {number}", data)
                except DamagedChunk:
                    if not seen.is_whole:
                        # Nobody sees a part of a chunk.
                        self._reload(number)
                    raise
            self._held_bytes += len(data)

    def _has_newer_checkpoint(self) -> bool:
        return self.chunks.checkpoint_number() > (self._base or 0)

    # Reading.

    @property
    def _files(self) -> StoredFiles:
        """What can be seen. The first look is made here, if nobody has asked for it."""
        if self._base is None:
            self.refresh()
        return self._seen.files

    def open(self, path: Path, *, writable: bool = False) -> "StoredDiskFile":
        if writable:
            self.refuse(path)
        content = self._files.contents.get(path)
        if content is not None:
            return StoredDiskFile(self, path, content)
        if self.is_directory(path):
            raise StorageFailed(f"{path} is not a regular file", path=path)
        raise FileNotFoundError(path)

    def names(self, directory: Path) -> list[str]:
        files = self._files
        with self._lock:
            return sorted(files.names.get(directory, ()))

    def is_directory(self, path: Path) -> bool:
        return path in self._files.names

    def exists(self, path: Path) -> bool:
        return self.is_directory(path) or path in self._files.contents

    def free_bytes(self, path: Path) -> int:  # noqa: ARG002 - There is one store for all.
        # Nobody writes there; whoever asks beforehand shall not be kept from looking.
        return ENDLESS_BYTES

    def sync_directory(self, directory: Path) -> None:
        """Whatever can be seen is committed."""

    def pieces(self, content: StoredContent, position: int, length: int) -> list[Stored | bytearray]:
        """What some bytes of a file are made of."""
        with self._lock:
            return list(content.between(position, position + length))

    def fetch(self, piece: Stored) -> bytes:
        """The bytes of a piece. Raises DamagedChunk when its object is not there."""
        return self._blocks.read(*piece)

    def content_now(self, path: Path, content: StoredContent) -> StoredContent:
        """What is in place of a content that has lost an object, after a look at what there is now.

        Raises FileNotFoundError when the file is gone, and DamagedChunk when it has the same object still.
        """
        with self._refreshing:
            if self._seen.files.contents.get(path) is content:
                if not self._has_newer_checkpoint():
                    raise damaged(str(path), "an object with bytes of it is not there")
                self._reload()
            found = self._seen.files.contents.get(path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    # What only an owner can do.

    def create(self, path: Path, *, is_private: bool = False) -> File:  # noqa: ARG002 - Nothing is made.
        self.refuse(path)

    def make_directory(self, path: Path) -> None:
        if not self.is_directory(path):
            self.refuse(path)

    def rename(self, source: Path, target: Path) -> None:  # noqa: ARG002 - Neither is touched.
        self.refuse(target)

    def remove(self, path: Path) -> None:
        self.refuse(path)

    def remove_directory(self, path: Path) -> None:
        self.refuse(path)

    def lock(self, path: Path, *, with_directory: bool = False) -> Lock:  # noqa: ARG002 - It is refused.
        self.refuse(path)

    def refuse(self, path: Path) -> NoReturn:
        """Raise NotOwner."""
        raise NotOwner(
            f"{path} is only read here, beside its owner, who alone can change it: open the queue itself"
        )

    def close(self) -> None:
        """Let go of the store."""
        self.chunks.close()


class StoredDiskFile:
    """A file of such a disk."""

    def __init__(self, disk: StoredDisk, path: Path, content: StoredContent) -> None:
        self.path = path
        self._disk = disk
        self._content = content

    def size(self) -> int:
        return self._content.size

    def read(self, position: int, length: int) -> bytes:
        while True:
            try:
                pieces = self._disk.pieces(self._content, position, length)
                return b"".join([self._disk.fetch(p) if isinstance(p, Stored) else p for p in pieces])
            except DamagedChunk:
                self._content = self._disk.content_now(self.path, self._content)

    def map(self, length: int) -> memoryview:
        return memoryview(self.read(0, length))

    def append(self, buffers: Sequence[Buffer]) -> int:  # noqa: ARG002 - Nothing is written.
        self._disk.refuse(self.path)

    def rewrite(self, position: int, data: Buffer) -> None:  # noqa: ARG002 - Nothing is written.
        self._disk.refuse(self.path)

    def truncate(self, size: int) -> None:  # noqa: ARG002 - Nothing is written.
        self._disk.refuse(self.path)

    def sync(self) -> None:
        """Whatever can be seen is committed."""

    def close(self) -> None:
        """Nothing is held."""
