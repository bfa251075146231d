"""Looks at every object of a disk in a store, beside its owner, and tells what is not as it should be.

One object is in memory at a time. What an owner trims meanwhile makes this begin again.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from quivermq.errors import DamagedChunk, StoreUnreachable
from quivermq.model.stats import FindingKind, LogFinding
from quivermq.shared.checkpoint import Checkpoint, checked_part, decode_checkpoint
from quivermq.shared.chunk import CHAIN_START, CHUNK_BYTES_MAX, ChunkHead, chain_of, damaged, decode_chunk
from quivermq.shared.chunks import ChunkSource, ListedChunk
from quivermq.shared.naming import CHECKPOINT, CHUNK, FILE, QUARANTINE, numbered

Advance = Callable[[int], None]

_LOOKS_MAX = 10
_UNKNOWN = (0, None)
_NONE = (0, 0)


def survey(chunks: ChunkSource, progress: Advance = lambda _: None) -> list[LogFinding]:
    """What is wrong with chunks, the latest checkpoint and the objects it names, and what nothing names.

    `progress` is called with the bytes of each object that is looked at. Raises what stores raise, and
    UnsupportedChunk.
    """
    for _ in range(_LOOKS_MAX):
        before = chunks.checkpoint_number()
        look = _Look(chunks, progress)
        look.run()
        is_whole = all(finding.kind != "damage" for finding in look.findings)
        if is_whole or chunks.checkpoint_number() == before:
            return look.findings
    raise StoreUnreachable("the owner makes checkpoints faster than one can look: try again")


def needed_bytes(chunks: ChunkSource) -> int:
    """About how many bytes there are to look at, for a progress bar."""
    return sum(size for name, size in chunks.sizes().items() if not name.startswith(QUARANTINE))


class _Look:
    """One look at everything."""

    def __init__(self, chunks: ChunkSource, progress: Advance) -> None:
        self.findings: list[LogFinding] = []
        self._chunks = chunks
        self._progress = progress
        self._sizes = chunks.sizes()
        self._named: set[str] = set()

    def run(self) -> None:
        number, checkpoint = self._checkpoint()
        listed = self._chunks.listed()
        claims = frozenset(checkpoint.claims) if checkpoint is not None else frozenset()
        for chunk in listed:
            # One that decided who the owner is has to stay, whatever covers it.
            if chunk.number in claims and chunk.number < number:
                self._claim(chunk)
        chain = CHAIN_START if number == 0 else None if checkpoint is None else checkpoint.chain
        self._row([chunk for chunk in listed if chunk.number >= number], number, chain)
        if checkpoint is not None:
            self._parts(checkpoint)
        self._rest(is_readable=number == 0 or checkpoint is not None)

    def _checkpoint(self) -> tuple[int, Checkpoint | None]:
        """The number up to which chunks are covered, and by what, if that can be read."""
        number = self._chunks.checkpoint_number()
        try:
            stored = self._chunks.checkpoint()
            if stored is None:
                return 0, None
            number = stored.number
            self._named.add(stored.name)
            self._progress(len(stored.data))
            return number, decode_checkpoint(stored.name, stored.data)
        except DamagedChunk as error:
            self._damage(error, str(error.path))
            return number, None

    def _claim(self, listed: ListedChunk) -> None:
        self._named.add(listed.name)
        try:
            head, _ = self._fetched(listed)
            if not head.is_claim:
                raise damaged(listed.name, "it is no claim, and the checkpoint says that it is one")
        except DamagedChunk as error:
            self._damage(error, listed.name)

    def _row(self, listed: list[ListedChunk], number: int, chain: bytes | None) -> None:
        """Chunks, each of which has to follow on from the one before. The chain may not be known."""
        epoch, first = 0, len(self.findings)
        unusable = 0
        for chunk in listed:
            unusable += len(self.findings) > first
            if chunk.number != number:
                name, count = numbered(number), chunk.number - number
                self._damage(
                    damaged(name, f"it is not there, nor are {count - 1} more, but later ones are"), name
                )
                chain, unusable = None, unusable + 1
            number = chunk.number + 1
            self._named.add(chunk.name)
            try:
                head, data = self._fetched(chunk)
                epoch = _check_order(chunk, head, epoch, chain)
                chain = chain_of(data)
            except DamagedChunk as error:
                self._damage(error, chunk.name)
                chain = None
        if unusable:
            found = self.findings[first]
            reason = f"{found.reason}; {unusable} chunks behind it cannot be used"
            self.findings[first] = replace(found, reason=reason)

    def _fetched(self, listed: ListedChunk) -> tuple[ChunkHead, bytes]:
        data = self._chunks.get_file(listed.name, CHUNK_BYTES_MAX)
        self._progress(len(data))
        head = decode_chunk(listed.name, data).head
        if head.number != listed.number:
            raise damaged(listed.name, f"it says that it is chunk {head.number}, not {listed.number}")
        if listed.chain is not None and listed.chain != chain_of(data):
            raise damaged(listed.name, "it is not what was committed")
        return head, data

    def _parts(self, checkpoint: Checkpoint) -> None:
        for file in checkpoint.files:
            for part in file.parts:
                if part.name in self._named:
                    continue
                self._named.add(part.name)
                try:
                    checked_part(part, self._chunks.get_file(part.name, part.size))
                except DamagedChunk as error:
                    self._damage(error, part.name, f"; {file.path} has its bytes")
                self._progress(part.size)

    def _rest(self, *, is_readable: bool) -> None:
        """What nothing names. Without a checkpoint that can be read, nobody knows what it names."""
        for name, size in self._sizes.items():
            if name.startswith(QUARANTINE):
                self._note("gap", name, size, "set aside by a repair")
            elif name not in self._named and is_readable and name.startswith((CHUNK, CHECKPOINT, FILE)):
                self._note("orphan", name, size, "nothing names it: it will be taken away, or named yet")

    def _damage(self, error: DamagedChunk, name: str, more: str = "") -> None:
        reason = str(error).partition(" is damaged: ")[2] or str(error)
        size = self._sizes.get(name, 0)
        self.findings.append(LogFinding("damage", Path(name), 0, size, _UNKNOWN, reason + more))

    def _note(self, kind: FindingKind, name: str, size: int, reason: str) -> None:
        self.findings.append(LogFinding(kind, Path(name), 0, size, _NONE, reason))


def _check_order(listed: ListedChunk, head: ChunkHead, epoch: int, chain: bytes | None) -> int:
    """The epoch of a chunk that follows on from those before. Raises DamagedChunk when it does not."""
    if chain is not None and head.chain != chain:
        raise damaged(listed.name, "it stands behind another history")
    if head.epoch < epoch:
        raise damaged(listed.name, f"an owner of epoch {epoch} was there before its epoch {head.epoch}")
    return head.epoch
