"""Mending a disk in a bucket: what can be read is kept, the rest is set aside, nothing is thrown away.

A chunk that cannot be read takes all behind it with it: nobody knows what they build on. So the disk goes
on from the chunk before, in a new checkpoint that covers all chunks that there are. A part that cannot be
read leaves a hole in its file; whether messages were in it says the log.

First the owner is fenced by a claim behind everything. A crash at any moment leaves the damage as it was,
or mended; then mending again goes on from there. Names that decided who the owner was stay taken.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from quivermq.errors import DamagedChunk, StorageFailed
from quivermq.shared.checkpoint import (
    CHECKPOINT_BYTES_MAX,
    Checkpoint,
    Part,
    StoredFile,
    checked_part,
    decode_checkpoint,
    encode_checkpoint,
)
from quivermq.shared.chunk import CHAIN_START, CHUNK_BYTES_MAX, ChunkHead, decode_chunk, encode_chunk
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.limits import SharedLimits
from quivermq.shared.naming import numbered
from quivermq.shared.stored_files import Stored, StoredContent, StoredRebuilding

_ROOT = Path("/")
Times = Callable[[bytes], Iterable[int]]
"""The moments, in unix microseconds, at which what is in some bytes was written."""


@dataclass(frozen=True, slots=True)
class LostChunk:
    """A chunk that counts no more. What was written by it is lost, as far as the next reader knows."""

    number: int
    size: int
    reason: str
    first_us: int | None
    last_us: int | None
    """When the first and the last of it were written, where that can be seen."""
    side_object: str | None
    """Where its bytes are now; None where there were none."""


@dataclass(frozen=True, slots=True)
class LostPart:
    """Bytes [position, end) of a file that were in an object that is gone, or is not what was stored."""

    path: str
    position: int
    end: int
    reason: str
    side_object: str | None


@dataclass(slots=True)
class Mending:
    """What became of a disk."""

    checkpoint: int = 0
    """The number of the checkpoint that was made; 0 when nothing had to be mended."""
    chunks: list[LostChunk] = field(default_factory=list)
    parts: list[LostPart] = field(default_factory=list)
    side_objects: list[str] = field(default_factory=list)
    """Everything else that was set aside: checkpoints and claims that cannot be read."""


def mend(
    chunks: ConditionalChunks, *, limits: SharedLimits | None = None, times: Times = lambda _: ()
) -> Mending:
    """Make a disk whole that cannot be opened. Its owner, if it has one, can store nothing from then on.

    Raises DamagedChunk where no checkpoint can be read, nor the chunks from the first on: then there is
    nothing to go on from. Raises what stores raise.
    """
    # Before anybody is fenced: there may be nothing to go on from.
    _best(chunks)
    number, chain = chunks.seize()
    return _Mender(chunks, limits or SharedLimits(), times, _best(chunks), number, chain).run()


class _State:
    """A disk as one checkpoint, or none, and the chunks behind it make it."""

    def __init__(self, chunks: ConditionalChunks, checkpoint: Checkpoint | None) -> None:
        self._chunks = chunks
        self._checkpoint = checkpoint
        self.reason = ""
        self.rebuilt = self._rebuilt(None)
        if not self.rebuilt.is_whole:
            self.rebuilt = self._rebuilt(self.rebuilt.number)
        self.lost_parts = dict(self._lost_parts())

    def _rebuilt(self, end: int | None) -> StoredRebuilding:
        rebuilt = StoredRebuilding(_ROOT)
        if self._checkpoint is not None:
            rebuilt.load(self._checkpoint, ())
        there = {each.number: each.name for each in self._chunks.listed()}
        while rebuilt.number in there and rebuilt.number != end:
            name = there[rebuilt.number]
            try:
                rebuilt.apply(name, self._chunks.get_file(name, CHUNK_BYTES_MAX))
            except DamagedChunk as error:
                self.reason = _reason(error)
                break
        return rebuilt

    def _lost_parts(self) -> Iterator[tuple[Part, str]]:
        contents = self.rebuilt.files.contents.values()
        pieces = (piece for content in contents for piece in content.between(0, content.size))
        for part in sorted({piece.part for piece in pieces if isinstance(piece, Stored)}):
            try:
                checked_part(part, self._chunks.get_file(part.name, part.size))
            except DamagedChunk as error:
                yield part, _reason(error)

    @property
    def rank(self) -> tuple[int, int]:
        """What comes later is better, and then what lacks fewer parts."""
        return self.rebuilt.number, -len(self.lost_parts)


def _best(chunks: ConditionalChunks) -> _State:
    """The latest state that can be made, with as few parts missing as can be."""
    states = [_State(chunks, each) for each in _readable(chunks)]
    from_the_first = _State(chunks, None)
    # The very first chunk is there for ever; those behind it only as long as no checkpoint covers them.
    if from_the_first.rebuilt.number >= max(chunks.checkpoint_number(), 1):
        states.append(from_the_first)
    if not states:
        raise DamagedChunk(
            "no checkpoint can be read, and the chunks that it covers are not there: restore a backup",
            path=Path(numbered(0)),
        )
    return max(states, key=lambda state: state.rank)


def _readable(chunks: ConditionalChunks) -> Iterator[Checkpoint]:
    """Each checkpoint that can be read, the latest first."""
    for name in chunks.checkpoint_names():
        try:
            yield decode_checkpoint(name, chunks.get_file(name, CHECKPOINT_BYTES_MAX))
        except DamagedChunk:
            continue


class _Mender:
    """Goes on from a state, in a checkpoint behind the claim of a number."""

    def __init__(
        self,
        chunks: ConditionalChunks,
        limits: SharedLimits,
        times: Times,
        state: _State,
        number: int,
        chain: bytes,
    ) -> None:
        self._chunks = chunks
        self._limits = limits
        self._times = times
        self._state = state
        self._number = number
        self._chain = chain
        self._inline_bytes = 0
        self._mending = Mending(number + 1)
        self._aside: dict[str, str | None] = {}
        # Of those that are lost: their names have to stay taken, by what says that they are claims.
        self._unreadable: list[int] = []

    def run(self) -> Mending:
        rebuilt = self._state.rebuilt
        claims = {*rebuilt.claims, self._number}
        self._set_checkpoints_aside()
        for number in rebuilt.claims:
            if self._head(number) is None:
                self._unreadable.append(number)
                self._note_aside(numbered(number))
        for number in range(rebuilt.number, self._number):
            head = self._lose(number)
            if head is None:
                self._unreadable.append(number)
            if head is None or head.is_claim:
                claims.add(number)
        files = [self._file(path, self._content(path)) for path in sorted(rebuilt.tree.files)]
        checkpoint = Checkpoint(
            self._number + 1,
            self._chain,
            tuple(sorted(claims)),
            tuple(sorted(rebuilt.tree.directories)),
            files,
        )
        self._chunks.put_checkpoint(self._number + 1, encode_checkpoint(checkpoint))
        # Only now, because until then they are all that tells of the damage.
        for number in self._unreadable:
            self._chunks.replace(number, encode_chunk(ChunkHead(number, 0, CHAIN_START, is_claim=True), ()))
        return self._mending

    def _set_checkpoints_aside(self) -> None:
        for name in self._chunks.checkpoint_names():
            try:
                decode_checkpoint(name, self._chunks.get_file(name, CHECKPOINT_BYTES_MAX))
            except DamagedChunk:
                self._note_aside(name)

    def _note_aside(self, name: str) -> None:
        aside = self._set_aside(name)
        if aside is not None:
            self._mending.side_objects.append(aside)

    def _set_aside(self, name: str) -> str | None:
        if name not in self._aside:
            self._aside[name] = self._chunks.set_aside(name)
        return self._aside[name]

    def _head(self, number: int) -> ChunkHead | None:
        """The head of a chunk that is what it should be."""
        try:
            name = numbered(number)
            head = decode_chunk(name, self._chunks.get_file(name, CHUNK_BYTES_MAX)).head
        except DamagedChunk:
            return None
        return head if head.number == number else None

    def _lose(self, number: int) -> ChunkHead | None:
        """Set a chunk aside that counts no more."""
        name = numbered(number)
        head, reason, data = None, "", b""
        try:
            data = self._chunks.get_file(name, CHUNK_BYTES_MAX)
            head = decode_chunk(name, data).head
        except DamagedChunk as error:
            reason = _reason(error)
        if head is not None and head.is_claim and not reason:
            return head
        if number == self._state.rebuilt.number and self._state.reason:
            reason = self._state.reason
        found = sorted(self._times(data))
        self._mending.chunks.append(
            LostChunk(
                number,
                len(data),
                reason or f"it stands behind chunk {self._state.rebuilt.number}",
                found[0] if found else None,
                found[-1] if found else None,
                self._set_aside(name),
            )
        )
        return head if head is not None and head.number == number else None

    def _content(self, path: str) -> StoredContent:
        return self._state.rebuilt.files.contents[_ROOT / path]

    def _file(self, path: str, content: StoredContent) -> StoredFile:
        """A file as the new checkpoint has it: the first parts, if they are whole, and the rest anew."""
        parts: list[Part] = []
        rest: list[bytes] = []
        position = 0
        for piece in content.between(0, content.size):
            if isinstance(piece, Stored) and not rest and self._is_whole(piece):
                parts.append(piece.part)
            else:
                rest.append(self._bytes(path, position, piece))
            position += len(piece)
        stored, tail = self._stored(b"".join(rest))
        is_private = self._state.rebuilt.tree.files[path].is_private
        return StoredFile(path, is_private, (*parts, *stored), tail)

    def _is_whole(self, piece: Stored) -> bool:
        return len(piece) == piece.part.size and piece.part not in self._state.lost_parts

    def _stored(self, data: bytes) -> tuple[list[Part], bytes]:
        """Bytes as objects of their own, and what is too small for that."""
        parts: list[Part] = []
        step = self._limits.part_bytes_max
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            if len(piece) < self._limits.part_bytes_min and self._has_room_for(piece):
                return parts, piece
            parts.append(Part(self._chunks.put_file(piece), len(piece), crc32c(piece)))
        return parts, b""

    def _has_room_for(self, data: bytes) -> bool:
        self._inline_bytes += len(data)
        return self._inline_bytes <= self._limits.inline_bytes_max

    def _bytes(self, path: str, position: int, piece: Stored | bytearray) -> bytes:
        """What a piece holds: of an object that is lost, whatever is there, and zeros."""
        if not isinstance(piece, Stored):
            return bytes(piece)
        reason = self._state.lost_parts.get(piece.part)
        if reason is None:
            return self._chunks.get_file_range(piece.part.name, piece.start, len(piece))
        self._mending.parts.append(
            LostPart(path, position, position + len(piece), reason, self._set_aside(piece.part.name))
        )
        data = self._there(piece.part)
        return data[piece.start : piece.end].ljust(len(piece), b"\0")

    def _there(self, part: Part) -> bytes:
        try:
            return self._chunks.get_file(part.name, CHUNK_BYTES_MAX)
        except DamagedChunk:
            return b""


def _reason(error: StorageFailed) -> str:
    return str(error).partition(" is damaged: ")[2] or str(error)
