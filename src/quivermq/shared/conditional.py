"""Chunks in a bucket alone: whoever creates the object of a number first decides what that chunk is.

An owner begins with an empty chunk, its claim. The owner before it would have put its next chunk under that
very name, finds it taken, and knows. So the object of a claim is kept for ever: were it trimmed, a writer
that was stopped for long would find its name free, and believe that it is still the owner.

A claim is void when a checkpoint covers it: then its name was free only because what had it was trimmed.
"""

from collections.abc import Collection, Iterable, Iterator
from os import urandom

from quivermq.errors import DamagedChunk, NotOwner, StoreUnreachable
from quivermq.shared.checkpoint import CHECKPOINT_BYTES_MAX, decode_checkpoint
from quivermq.shared.chunk import (
    CHAIN_START,
    CHUNK_BYTES_MAX,
    ChunkHead,
    chain_of,
    damaged,
    encode_chunk,
)
from quivermq.shared.chunks import ListedChunk, StoredCheckpoint
from quivermq.shared.counting import CountingStore, RequestKind, Requests
from quivermq.shared.fetching import fetched
from quivermq.shared.naming import (
    CHECKPOINT,
    CHUNK,
    FILE,
    NUMBERED,
    QUARANTINE,
    first_number,
    numbered,
    unique,
)
from quivermq.shared.objects import ObjectStore, needed, needed_range

# So often may others claim, trim or checkpoint while somebody looks for the end.
_LOOKS_MAX = 100


class ConditionalChunks:
    """The chunks of one disk in a store whose `put_if_absent` is real: see `race.py`."""

    def __init__(self, store: ObjectStore, *, readers: int = 8) -> None:
        self._store = CountingStore(store)
        self._readers = readers
        self._epoch = 0
        self._claim: tuple[int, bytes] | None = None

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def requests(self) -> dict[RequestKind, Requests]:
        return self._store.requests

    def claim(self) -> int:
        for _ in range(_LOOKS_MAX):
            # One that was begun is finished first: it may be what counts, and would be kept for ever.
            self._claim = self._claim or self._next_claim()
            if self._claim is None:
                continue
            number, claim = self._claim
            is_ours = self._is_decided_for(number, claim) and self.checkpoint_number() <= number
            self._claim = None
            if is_ours:
                self._epoch = number + 1
                return self._epoch
        raise StoreUnreachable("others claim the same disk all the time: let only one process open it")

    def _next_claim(self) -> tuple[int, bytes] | None:
        end = self._end()
        if end is None:
            return None
        number, chain = end
        return number, encode_chunk(ChunkHead(number, number + 1, chain, is_claim=True), ())

    def seize(self) -> tuple[int, bytes]:
        """Become the owner of what cannot be read: claim the number behind all that there are.

        Returns the number of the claim, and the chain behind it.
        """
        for _ in range(_LOOKS_MAX):
            number = max([self.checkpoint_number(), *(each.number + 1 for each in self.listed())])
            last = self._store.get(numbered(number - 1), CHUNK_BYTES_MAX) if number else None
            chain = CHAIN_START if last is None else chain_of(last)
            claim = encode_chunk(ChunkHead(number, number + 1, chain, is_claim=True), ())
            if self._is_decided_for(number, claim):
                self._epoch = number + 1
                return number, chain_of(claim)
        raise StoreUnreachable("its owner writes all the time: stop it first")

    def append(self, number: int, chunk: bytes) -> None:
        if not self._is_decided_for(number, chunk):
            raise NotOwner(
                f"another process has taken over: chunk {number} is its own; open the queue anew to go on"
            )

    def check_owner(self, number: int) -> None:
        if self._store.get(numbered(number), CHUNK_BYTES_MAX) is not None:
            raise NotOwner(
                f"another process has taken over: chunk {number} is its own; open the queue anew to go on"
            )

    def _is_decided_for(self, number: int, chunk: bytes) -> bool:
        """Whether this chunk has the number, for good; if not, another one has."""
        name = numbered(number)
        if self._store.put_if_absent(name, chunk):
            return True
        # A put that was sent twice meets itself, and some stores refuse what did not land at all.
        there = self._store.get(name, CHUNK_BYTES_MAX)
        if there is None:
            raise StoreUnreachable(f"{name} was refused as being there, and is not there")
        return there == chunk

    def _end(self) -> tuple[int, bytes] | None:
        """The number of the next chunk, and its chain; None when somebody trims at this moment."""
        checkpoint = self.checkpoint()
        start = 0 if checkpoint is None else checkpoint.number
        try:
            end = start + len(self._numbers(start))
        except DamagedChunk:
            if self.checkpoint_number() > start:
                return None
            raise
        if end > start:
            last = self._store.get(numbered(end - 1), CHUNK_BYTES_MAX)
            return None if last is None else (end, chain_of(last))
        if checkpoint is None:
            return end, CHAIN_START
        return end, decode_checkpoint(f"checkpoint {start}", checkpoint.data).chain

    def _numbers(self, start: int) -> list[int]:
        """The chunks from there on. Raises DamagedChunk where one is missing."""
        there = [number for number in map(first_number, self._store.names(CHUNK)) if number >= start]
        for expected, number in enumerate(there, start):
            if number != expected:
                raise damaged(numbered(expected), "it is not there, but later ones are")
        return there

    def read(self, start: int) -> Iterator[tuple[int, bytes]]:
        yield from fetched(self._numbers(start), self._chunk, self._readers)

    def _chunk(self, number: int) -> bytes:
        return needed(self._store, numbered(number), CHUNK_BYTES_MAX)

    def checkpoint_number(self) -> int:
        names = self._store.names(CHECKPOINT)
        return first_number(names[-1]) if names else 0

    def checkpoint(self) -> StoredCheckpoint | None:
        for _ in range(_LOOKS_MAX):
            names = self._store.names(CHECKPOINT)
            if not names:
                return None
            # It is not there any more when a later one has come meanwhile.
            data = self._store.get(names[-1], CHECKPOINT_BYTES_MAX)
            if data is not None:
                return StoredCheckpoint(first_number(names[-1]), data, names[-1])
        raise damaged(names[-1], "it is listed, and not there")

    def put_checkpoint(self, number: int, data: bytes) -> None:
        # Also of somebody who is not the owner any more it is right: it covers what was committed.
        self._store.put(unique(CHECKPOINT, number, self._epoch), data)

    def trim(self, number: int, keep: Collection[int]) -> None:
        old = (name for name in self._store.names(CHUNK) if first_number(name) < number)
        self._store.remove([name for name in old if first_number(name) not in keep])
        self._store.remove([n for n in self._store.names(CHECKPOINT) if first_number(n) < number])

    def put_file(self, data: bytes) -> str:
        name = unique(FILE, self._epoch)
        self._store.put(name, data)
        return name

    def get_file(self, name: str, bytes_max: int) -> bytes:
        return needed(self._store, name, bytes_max)

    def get_file_range(self, name: str, start: int, length: int) -> bytes:
        return needed_range(self._store, name, start, length)

    def checkpoint_names(self) -> list[str]:
        """The objects of all checkpoints that there are, the latest first."""
        return self._store.names(CHECKPOINT)[::-1]

    def set_aside(self, name: str) -> str | None:
        """Copy an object to where nothing is ever taken away; its name there, None when it is gone."""
        data = self._store.get(name, CHECKPOINT_BYTES_MAX)
        if data is None:
            return None
        aside = f"{QUARANTINE}{urandom(8).hex()}/{name}"
        self._store.put(aside, data)
        return aside

    def replace(self, number: int, chunk: bytes) -> None:
        """Put a chunk in the place of one that cannot be read, or of none: its name stays taken."""
        self._store.put(numbered(number), chunk)

    def listed(self) -> list[ListedChunk]:
        # Others in that place, if there are any, are nobody's.
        return [
            ListedChunk(int(n[1]), n[0]) for n in map(NUMBERED.fullmatch, self._store.names(CHUNK)) if n
        ]

    def sizes(self) -> dict[str, int]:
        return self._store.sizes("")

    def left_files(self) -> list[str]:
        return [name for name in self._store.names(FILE) if first_number(name) <= self._epoch]

    def remove_files(self, names: Iterable[str]) -> None:
        self._store.remove(names)

    def close(self) -> None:
        self._store.close()
