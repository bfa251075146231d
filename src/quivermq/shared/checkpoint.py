"""The checkpoint: every file of a disk behind a certain chunk, so that the chunks before it may go.

    header     magic `QVK1`, CRC32C of everything behind it, version, bytes of the document
    document   JSON: the chain, the claims, the directories, the files
    tails      the ends of files that are in no object of their own, one behind the other

A file is a row of parts, each an object of its own and as it is in the file, and a tail. One that does
not grow any more has one part, which is the file: others may read it there.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple

from crc32c import crc32c

from quivermq.errors import UnsupportedChunk
from quivermq.shared.chunk import checked_path, damaged
from quivermq.shared.limits import SharedLimits

MAGIC = b"QVK1"
VERSION = 1
# What a reader is ready to hold in memory.
CHECKPOINT_BYTES_MAX = 1 << 30

_HEADER = Struct("<4sIII")
_CRC_END = 8
_CHAIN_BYTES = 32


class Part(NamedTuple):
    """Some bytes of a file as an object of their own."""

    name: str
    size: int
    crc: int


def checked_part(part: Part, data: bytes) -> bytes:
    """What was fetched of a part, all of it. Raises DamagedChunk when it is not what was stored."""
    if len(data) != part.size or crc32c(data) != part.crc:
        raise damaged(part.name, "it is not what its checkpoint says of it")
    return data


def is_settled(size: int, parts: Sequence[Part], limits: SharedLimits) -> bool:
    """Whether all of a file is stored, and as it stays: as one object, unless it is too large for that.

    Only then this machine can do without it, and only where it is large enough to be worth while.
    """
    return (
        size >= limits.quiet_bytes_min
        and sum(part.size for part in parts) == size
        and (len(parts) == 1 or size > limits.part_bytes_max)
    )


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a checkpoint."""

    path: str
    is_private: bool
    parts: tuple[Part, ...]
    tail: bytes
    mark: str = ""
    """By what a file of a backup is known to be the same as then, unread; empty where nobody knows."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts) + len(self.tail)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was there behind the chunk before `number`."""

    number: int
    chain: bytes
    claims: tuple[int, ...] = ()
    """The numbers of chunks that decided who the owner is."""
    directories: tuple[str, ...] = ()
    files: Sequence[StoredFile] = field(default=())

    def part_names(self) -> set[str]:
        """The objects that must not be taken away."""
        return {part.name for file in self.files for part in file.parts}


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint."""
    document = json.dumps(
        {
            "number": checkpoint.number,
            "chain": checkpoint.chain.hex(),
            "claims": checkpoint.claims,
            "directories": checkpoint.directories,
            "files": [
                {
                    "path": file.path,
                    "is_private": file.is_private,
                    "parts": file.parts,
                    "tail_bytes": len(file.tail),
                    **({"mark": file.mark} if file.mark else {}),
                }
                for file in checkpoint.files
            ],
        },
        separators=(",", ":"),
    ).encode()
    head = _HEADER.pack(MAGIC, 0, VERSION, len(document))
    body = b"".join((head[_CRC_END:], document, *(file.tail for file in checkpoint.files)))
    return MAGIC + crc32c(body).to_bytes(4, "little") + body


def decode_checkpoint(name: str, data: bytes) -> Checkpoint:
    """What is in a checkpoint. Raises DamagedChunk, and UnsupportedChunk for one of a later release."""
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise damaged(name, "it does not begin as a checkpoint does")
    _, crc, version, document_bytes = _HEADER.unpack_from(data)
    # First, because every release has it there: a rotten version is no later one.
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise damaged(name, "its checksum does not fit")
    if version != VERSION:
        raise UnsupportedChunk(
            f"{name} has version {version}; this release reads version {VERSION}:"
            " use the release that wrote it"
        )
    end = _HEADER.size + document_bytes
    try:
        return _decode_document(name, json.loads(data[_HEADER.size : end]), memoryview(data)[end:])
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        # The checksum fits: whoever wrote it did not mean what this release reads.
        raise damaged(name, f"its document is not as it should be ({error})") from error


def _decode_document(name: str, document: dict[str, Any], tails: memoryview) -> Checkpoint:
    files: list[StoredFile] = []
    position = 0
    for stored in document["files"]:
        size = stored["tail_bytes"]
        if not 0 <= size <= len(tails) - position:
            raise damaged(name, f"the end of {stored['path']} is missing")
        parts = tuple(Part(str(part[0]), int(part[1]), int(part[2])) for part in stored["parts"])
        path = checked_path(name, stored["path"].encode())
        tail = bytes(tails[position : position + size])
        mark = str(stored.get("mark", ""))
        files.append(StoredFile(path, bool(stored["is_private"]), parts, tail, mark))
        position += size
    chain = bytes.fromhex(document["chain"])
    if position != len(tails) or len(chain) != _CHAIN_BYTES:
        raise damaged(name, "its lengths do not fit")
    return Checkpoint(
        number=int(document["number"]),
        chain=chain,
        claims=tuple(map(int, document["claims"])),
        directories=tuple(checked_path(name, path.encode()) for path in document["directories"]),
        files=files,
    )
