"""Making the files of a disk from a checkpoint and the chunks behind it, in an empty directory.

Each byte has to be where its chunk says: a checkpoint that covers one chunk too many or too few, a chunk
that was lost or repeated, and a store that mixes two histories all show here, and nothing is opened.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from quivermq.disk import Buffer
from quivermq.shared.checkpoint import Checkpoint, Part, StoredFile, checked_part, is_settled
from quivermq.shared.chunk import CHAIN_START, Kind, Mutation, chain_of, damaged, decode_chunk
from quivermq.shared.limits import SharedLimits
from quivermq.shared.tree import FileNode, Tree

# What needs the bytes of a file, or the file itself to write to.
_CHANGES = (Kind.APPEND, Kind.REWRITE, Kind.TRUNCATE)
# Files that are kept open for the next mutation; most chunks have several for the same few.
_FILES_MAX = 64


class RebuiltFile(Protocol):
    """What is done to a file while it is made anew."""

    def append(self, buffers: Sequence[Buffer]) -> int: ...
    def rewrite(self, position: int, data: Buffer) -> None: ...
    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...


class RebuildingDisk(Protocol):
    """What is done to names meanwhile. Every `Disk` can do it."""

    def create(self, path: Path, *, is_private: bool = False) -> RebuiltFile: ...
    def open(self, path: Path, *, writable: bool = False) -> RebuiltFile: ...
    def rename(self, source: Path, target: Path) -> None: ...
    def remove(self, path: Path) -> None: ...
    def make_directory(self, path: Path) -> None: ...
    def remove_directory(self, path: Path) -> None: ...


class Rebuilding:
    """A disk on its way from the store into a directory. `number` is the chunk that comes next."""

    def __init__(
        self,
        disk: RebuildingDisk,
        root: Path,
        *,
        limits: SharedLimits | None = None,
        fetch: Callable[[Iterable[Part]], Iterable[tuple[Part, bytes]]] | None = None,
    ) -> None:
        """With `fetch`, files that are stored as they stay are left there until a chunk changes them."""
        self.tree = Tree()
        self.number = 0
        self.base: int | None = None
        """The number of the checkpoint that it was made from."""
        self.chain = CHAIN_START
        self.epoch = 0
        self.claims: list[int] = []
        self.is_whole = True
        """False once a chunk was done in part only, because the rest of it does not fit."""
        self._disk = disk
        self._root = root
        self._limits = limits or SharedLimits()
        self._fetch = fetch
        self._open: dict[str, RebuiltFile] = {}

    def stays_away(self, file: StoredFile) -> bool:
        """Whether a file of a checkpoint need not be fetched."""
        return self._fetch is not None and is_settled(file.size, file.parts, self._limits)

    def load(self, checkpoint: Checkpoint, parts: Iterable[tuple[Part, bytes]]) -> None:
        """Make the files of a checkpoint. `parts` are theirs, in its order, unless they stay away."""
        self.number, self.chain = checkpoint.number, checkpoint.chain
        self.base = checkpoint.number
        self.claims = list(checkpoint.claims)
        name = f"checkpoint {checkpoint.number}"
        for directory in sorted(checkpoint.directories):
            self._make_directory(name, Mutation(Kind.MAKE_DIRECTORY, directory))
        fetched = iter(parts)
        for file in checkpoint.files:
            if self.stays_away(file):
                self._leave_file(name, file)
            else:
                self._load_file(name, file, fetched)
        self.close()

    def _leave_file(self, name: str, file: StoredFile) -> None:
        self._check_new(name, file.path)
        node = self.tree.create(file.path, is_private=file.is_private)
        node.parts, node.size = file.parts, file.size
        self.tree.evict(node)

    def _load_file(self, name: str, file: StoredFile, fetched: Iterable[tuple[Part, bytes]]) -> None:
        self._create(name, Mutation(Kind.CREATE, file.path, int(file.is_private)))
        node = self.tree.files[file.path]
        for expected, (part, data) in zip(file.parts, fetched, strict=False):
            if part != expected:
                raise damaged(part.name, f"it is not the part that {name} names next")
            self._append(
                part.name,
                Mutation(Kind.APPEND, file.path, node.size, "", checked_part(part, data)),
            )
        node.parts = file.parts
        if node.size != node.stored_bytes:
            raise damaged(name, f"a part of {file.path} was not read")
        if file.tail:
            self._append(name, Mutation(Kind.APPEND, file.path, node.size, "", file.tail))

    def apply(self, name: str, data: bytes) -> None:
        """Do what a chunk says, if it is the next one. Raises DamagedChunk and UnsupportedChunk."""
        chunk = decode_chunk(name, data)
        head = chunk.head
        if head.number != self.number:
            raise damaged(name, f"it says that it is chunk {head.number}, and {self.number} comes next")
        if head.chain != self.chain:
            raise damaged(name, "it stands behind another history")
        if head.epoch < self.epoch:
            raise damaged(name, f"an owner of epoch {self.epoch} was there before its epoch {head.epoch}")
        # Together, because one after the other each is a journey to the store.
        self._bring_back(each.path for each in chunk.mutations if each.kind in _CHANGES)
        self.is_whole = False
        for mutation in chunk.mutations:
            _ACTS[mutation.kind](self, name, mutation)
        self.is_whole = True
        if head.is_claim:
            self.claims.append(head.number)
        self.number += 1
        self.chain = chain_of(data)
        self.epoch = head.epoch

    def close(self) -> None:
        """Let go of files. More can be applied afterwards."""
        while self._open:
            self._open.popitem()[1].close()

    def _create(self, name: str, mutation: Mutation) -> None:
        self._check_new(name, mutation.path)
        self._shut(mutation.path)
        is_private = bool(mutation.argument)
        self._keep_open(mutation.path, self._disk.create(self._root / mutation.path, is_private=is_private))
        self.tree.create(mutation.path, is_private=is_private)

    def _append(self, name: str, mutation: Mutation) -> None:
        node = self._node(name, mutation.path)
        if mutation.argument != node.size:
            raise damaged(
                name, f"{mutation.path} has {node.size} bytes, and {mutation.argument} comes next"
            )
        node.size += self._file(mutation.path).append((mutation.data,))

    def _rewrite(self, name: str, mutation: Mutation) -> None:
        node = self._node(name, mutation.path)
        if mutation.argument + len(mutation.data) > node.size:
            raise damaged(name, f"it writes behind the end of {mutation.path}")
        self._file(mutation.path).rewrite(mutation.argument, mutation.data)
        node.cut(mutation.argument)

    def _truncate(self, name: str, mutation: Mutation) -> None:
        node = self._node(name, mutation.path)
        if mutation.argument > node.size:
            raise damaged(name, f"it cuts {mutation.path} to more bytes than it has")
        self._file(mutation.path).truncate(mutation.argument)
        node.size = mutation.argument
        node.cut(node.size)

    def _rename(self, name: str, mutation: Mutation) -> None:
        source, target = mutation.path, mutation.target
        self._check_there(name, source)
        self._check_place(name, target)
        if source in self.tree.directories:
            self.close()
        self._shut(source)
        self._shut(target)
        self._rename_cached(source, target)
        self.tree.move(source, target)

    def _rename_cached(self, source: str, target: str) -> None:
        node, replaced = self.tree.files.get(source), self.tree.files.get(target)
        if node is None or not node.is_evicted:
            self._disk.rename(self._root / source, self._root / target)
        elif replaced is not None and not replaced.is_evicted:
            self._disk.remove(self._root / target)

    def _remove(self, name: str, mutation: Mutation) -> None:
        node = self._node(name, mutation.path)
        self._shut(mutation.path)
        if not node.is_evicted:
            self._disk.remove(self._root / mutation.path)
        self.tree.remove(mutation.path)

    def _make_directory(self, name: str, mutation: Mutation) -> None:
        self._check_place(name, mutation.path)
        self._disk.make_directory(self._root / mutation.path)
        self.tree.directories.add(mutation.path)

    def _remove_directory(self, name: str, mutation: Mutation) -> None:
        if mutation.path not in self.tree.directories or self.tree.is_used(mutation.path):
            raise damaged(name, f"it removes {mutation.path}, which is no empty directory")
        self._disk.remove_directory(self._root / mutation.path)
        self.tree.directories.remove(mutation.path)

    def _check_new(self, name: str, path: str) -> None:
        self._check_place(name, path)
        if path in self.tree.directories:
            raise damaged(name, f"{path} is a directory")

    def _check_there(self, name: str, path: str) -> None:
        if path not in self.tree.files and path not in self.tree.directories:
            raise damaged(name, f"there is no {path}")

    def _check_place(self, name: str, path: str) -> None:
        if not self.tree.has_parent(path):
            raise damaged(name, f"{path} lies in a directory that is not there")

    def _node(self, name: str, path: str) -> FileNode:
        self._check_there(name, path)
        if path not in self.tree.files:
            raise damaged(name, f"{path} is a directory")
        return self.tree.files[path]

    def _file(self, path: str) -> RebuiltFile:
        file = self._open.pop(path, None)
        if file is None:
            self._bring_back((path,))
            file = self._disk.open(self._root / path, writable=True)
        self._keep_open(path, file)
        return file

    def _bring_back(self, paths: Iterable[str]) -> None:
        """Fetch those of these files that were left in the store."""
        found = (self.tree.files.get(path) for path in dict.fromkeys(paths))
        nodes = [node for node in found if node is not None and node.is_evicted]
        if not nodes:
            return
        assert self._fetch is not None, "without it no file is left in the store"
        fetched = iter(self._fetch(part for node in nodes for part in node.parts))
        for node in nodes:
            assert node.path is not None, "every file of the tree has a name"
            file = self._disk.create(self._root / node.path, is_private=node.is_private)
            try:
                for part, data in islice(fetched, len(node.parts)):
                    file.append((checked_part(part, data),))
            finally:
                file.close()
            self.tree.bring_back(node)

    def _keep_open(self, path: str, file: RebuiltFile) -> None:
        # The one that was used last comes last.
        self._open[path] = file
        if len(self._open) > _FILES_MAX:
            self._shut(next(iter(self._open)))

    def _shut(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()


_ACTS: dict[Kind, Callable[[Rebuilding, str, Mutation], None]] = {
    Kind.CREATE: Rebuilding._create,
    Kind.APPEND: Rebuilding._append,
    Kind.REWRITE: Rebuilding._rewrite,
    Kind.TRUNCATE: Rebuilding._truncate,
    Kind.RENAME: Rebuilding._rename,
    Kind.REMOVE: Rebuilding._remove,
    Kind.MAKE_DIRECTORY: Rebuilding._make_directory,
    Kind.REMOVE_DIRECTORY: Rebuilding._remove_directory,
}
