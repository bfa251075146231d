"""The chunk: what was done to the files of a disk, in order, as one object that is committed whole.

    header   magic `QVC1`, CRC32C of everything behind it, version, flags, number of paths,
             number of the chunk, epoch of its owner, number of mutations, nonce, chain
    paths    each with its length in front; mutations name them by their place in this list
    mutations   each a fixed head (kind, path, argument, length of the data) and its data

The chain is the SHA-256 of the chunk before, which has the chain before that in it: a chunk fits behind
exactly one history. The nonce is random, so that no two owners, nor two attempts, make the same bytes.

Whatever comes out of a store may have been made by anybody. Every length is compared with the bytes that
are there before anything is made of it, and a path never leads out of the directory.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from os import urandom
from pathlib import Path, PurePosixPath
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from quivermq.errors import DamagedChunk, UnsupportedChunk

MAGIC = b"QVC1"
VERSION = 1
CHAIN_START = bytes(32)
NONCE_BYTES = 16
# More than any chunk that is made, and what a reader is ready to hold in memory.
CHUNK_BYTES_MAX = 256 << 20
# As many as file systems allow.
_PATH_BYTES_MAX = 4096
_PART_BYTES_MAX = 255

# The first chunk of an epoch, which is kept for ever where it decided who owns the disk.
_FLAG_CLAIM = 1
_FLAGS_UNKNOWN = ~_FLAG_CLAIM

_HEADER = Struct("<4sI HHI QQQ 16s 32s")
_PATH = Struct("<H")
_MUTATION = Struct("<BxxxIQI")
_CRC_END = 8


class Kind(IntEnum):
    """What a mutation does. The numbers are stored."""

    CREATE = 1
    APPEND = 2
    REWRITE = 3
    TRUNCATE = 4
    RENAME = 5
    REMOVE = 6
    MAKE_DIRECTORY = 7
    REMOVE_DIRECTORY = 8


_KIND_MAX = max(Kind)


class Mutation(NamedTuple):
    """One change of one file. `path` is below the root of the disk, with `/` between its parts."""

    kind: Kind
    path: str
    argument: int = 0
    """Where bytes are written, the size that is cut to, or whether a new file is private."""
    target: str = ""
    """The other name of a rename."""
    data: bytes = b""

    @property
    def weight(self) -> int:
        """About how many bytes it adds to a chunk."""
        return _MUTATION.size + len(self.data)


class ChunkHead(NamedTuple):
    """Which chunk it is, and behind which history it stands."""

    number: int
    epoch: int
    chain: bytes
    is_claim: bool = False


class Chunk(NamedTuple):
    """A chunk that was read and checked."""

    head: ChunkHead
    mutations: list[Mutation]


def chain_of(data: bytes) -> bytes:
    """What the next chunk names as its history."""
    return hashlib.sha256(data).digest()


def encode_chunk(head: ChunkHead, mutations: Sequence[Mutation]) -> bytes:
    """The bytes of a chunk, different each time."""
    places: dict[str, int] = {}
    parts: list[bytes] = []
    count = 0
    for mutation in _joined(mutations):
        kind, path, argument, target, data = mutation
        if kind is Kind.RENAME:
            argument = places.setdefault(target, len(places))
        parts += (_MUTATION.pack(kind, places.setdefault(path, len(places)), argument, len(data)), data)
        count += 1
    names = b"".join(_PATH.pack(len(name)) + name for name in (path.encode() for path in places))
    flags = _FLAG_CLAIM if head.is_claim else 0
    counts = (len(places), head.number, head.epoch, count)
    header = _HEADER.pack(MAGIC, 0, VERSION, flags, *counts, urandom(NONCE_BYTES), head.chain)
    body = b"".join((header[_CRC_END:], names, *parts))
    return MAGIC + crc32c(body).to_bytes(4, "little") + body


def _joined(mutations: Iterable[Mutation]) -> Iterator[Mutation]:
    """The same, with appends that follow on one another made one: most chunks have many to one file."""
    held: list[Mutation] = []
    end = 0
    for mutation in mutations:
        is_next = bool(held) and mutation.kind is Kind.APPEND and mutation.path == held[0].path
        if is_next and mutation.argument == end:
            held.append(mutation)
        else:
            yield from _as_one(held)
            held = [mutation] if mutation.kind is Kind.APPEND else []
            if not held:
                yield mutation
        end = mutation.argument + len(mutation.data)
    yield from _as_one(held)


def _as_one(appends: list[Mutation]) -> Iterator[Mutation]:
    if len(appends) == 1:
        yield appends[0]
    elif appends:
        yield appends[0]._replace(data=b"".join([each.data for each in appends]))


def decode_chunk(name: str, data: bytes) -> Chunk:
    """What is in a chunk, every byte of it checked. `name` is what errors call it.

    Raises DamagedChunk, and UnsupportedChunk for one of a later release.
    """
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise damaged(name, "it does not begin as a chunk does")
    fields = _HEADER.unpack_from(data)
    _, crc, version, flags, path_count, number, epoch, count, _, chain = fields
    # First, because every release has it there: a rotten version is no later one.
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise damaged(name, "its checksum does not fit")
    if version != VERSION or flags & _FLAGS_UNKNOWN:
        raise UnsupportedChunk(
            f"{name} has version {version} and flags {flags:#x}; this release reads version {VERSION}:"
            " use the release that wrote it"
        )
    paths, position = _decode_paths(name, data, path_count)
    mutations = _decode_mutations(name, data, position, paths, count)
    return Chunk(ChunkHead(number, epoch, chain, bool(flags & _FLAG_CLAIM)), mutations)


def _decode_paths(name: str, data: bytes, count: int) -> tuple[list[str], int]:
    paths: list[str] = []
    position = _HEADER.size
    if count * _PATH.size > len(data) - position:
        raise damaged(name, f"it cannot have {count} paths")
    for _ in range(count):
        if position + _PATH.size > len(data):
            raise damaged(name, "it ends inside of a path")
        (length,) = _PATH.unpack_from(data, position)
        position += _PATH.size
        paths.append(checked_path(name, data[position : position + length]))
        position += length
    return paths, position


def _decode_mutations(
    name: str, data: bytes, position: int, paths: list[str], count: int
) -> list[Mutation]:
    mutations: list[Mutation] = []
    if count * _MUTATION.size > len(data) - position:
        raise damaged(name, f"it cannot have {count} mutations")
    for _ in range(count):
        if position + _MUTATION.size > len(data):
            raise damaged(name, "it ends inside of a mutation")
        kind, place, argument, length = _MUTATION.unpack_from(data, position)
        position += _MUTATION.size
        if length > len(data) - position:
            raise damaged(name, "it ends inside of the data of a mutation")
        if not 1 <= kind <= _KIND_MAX or place >= len(paths):
            raise damaged(name, f"a mutation has kind {kind} and path {place}")
        target = ""
        if kind == Kind.RENAME:
            if argument >= len(paths):
                raise damaged(name, f"a rename leads to path {argument}")
            argument, target = 0, paths[argument]
        mutations.append(
            Mutation(Kind(kind), paths[place], argument, target, data[position : position + length])
        )
        position += length
    if position != len(data):
        raise damaged(name, "something follows behind its last mutation")
    return mutations


def checked_path(name: str, encoded: bytes) -> str:
    """A path that leads down, part by part, and nowhere else. Raises DamagedChunk."""
    try:
        path = encoded.decode()
    except UnicodeDecodeError:
        raise damaged(name, "a path is no text") from None
    parts = path.split("/")
    if (
        not 0 < len(encoded) <= _PATH_BYTES_MAX
        or "\0" in path
        or any(part in ("", ".", "..") or len(part.encode()) > _PART_BYTES_MAX for part in parts)
    ):
        raise damaged(name, f"a path leads elsewhere: {path[:64]!r}")
    return path


def path_below(root: Path, path: Path) -> str | None:
    """How mutations call a path; None for the root itself and what is not below it."""
    if path == root or not path.is_relative_to(root):
        return None
    return str(PurePosixPath(path.relative_to(root)))


def damaged(name: str, reason: str) -> DamagedChunk:
    """The error for an object that cannot be used."""
    return DamagedChunk(f"{name} is damaged: {reason}", path=Path(name))
