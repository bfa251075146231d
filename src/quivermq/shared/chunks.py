"""`Chunks`: where committed chunks are, and who may add to them. The forms of it are in modules beside.

Whatever the form, one order of chunks is decided for all, and an owner whose claim was followed by another
one can add nothing any more, however late its requests arrive.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from quivermq.shared.counting import RequestKind, Requests


class StoredCheckpoint(NamedTuple):
    """A checkpoint as it is stored. It covers every chunk before `number`."""

    number: int
    data: bytes
    name: str
    """The object that it is."""


class ListedChunk(NamedTuple):
    """A chunk as it is listed, whatever is in its object."""

    number: int
    name: str
    chain: bytes | None = None
    """What `chain_of` makes of it, where the list says so."""


class ChunkSource(Protocol):
    """What can be read of a disk in a store, by anybody: no claim is needed. Thread-safe.

    Every operation may raise StoreUnreachable, StoreDenied and StoreNotFound.
    """

    def read(self, start: int) -> Iterator[tuple[int, bytes]]:
        """All chunks from that number on, in order. Raises DamagedChunk where one is missing.

        That may also be because somebody trims: then there is a newer checkpoint.
        """
        ...

    def checkpoint(self) -> StoredCheckpoint | None:
        """The latest checkpoint, None when there is none."""
        ...

    def checkpoint_number(self) -> int:
        """The chunks before it are covered by the latest checkpoint; 0 when there is none."""
        ...

    def get_file(self, name: str, bytes_max: int) -> bytes:
        """What `put_file` has stored. Raises DamagedChunk when it is not there, or larger than that."""
        ...

    def get_file_range(self, name: str, start: int, length: int) -> bytes:
        """So many bytes of it from a position on. Raises DamagedChunk when they are not all there."""
        ...

    def listed(self) -> list[ListedChunk]:
        """All chunks that there are by their numbers, also when some are missing, and kept claims."""
        ...

    def sizes(self) -> dict[str, int]:
        """All objects of the disk, also those that nothing names, each with its bytes."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Chunks(ChunkSource, Protocol):
    """The chunks, checkpoints and files of one disk in a store. One thread appends; any may do the rest.

    Every operation may raise StoreUnreachable, after which it may or may not have been done, and may be
    called again; and StoreDenied or StoreNotFound, which time does not heal.
    """

    @property
    def epoch(self) -> int:
        """The number of this owner's claim, larger than those of all before."""
        ...

    @property
    def requests(self) -> Mapping[RequestKind, Requests]:
        """What was asked of the object store so far."""
        ...

    def claim(self) -> int:
        """Become the owner; from then on whoever was it can append nothing. Returns the epoch."""
        ...

    def check_owner(self, number: int) -> None:
        """Raise NotOwner when somebody else has appended that chunk, which is the next one.

        For whoever appends, while nothing is under way.
        """
        ...

    def append(self, number: int, chunk: bytes) -> None:
        """Return once the chunk is the one of that number, for good.

        The same call is repeated after StoreUnreachable until it says one or the other. Raises NotOwner:
        nothing more can be stored, and whether this chunk is, only the next owner knows.
        """
        ...

    def put_checkpoint(self, number: int, data: bytes) -> None:
        """Store what covers every chunk before `number`, all of which are known to be committed.

        Raises NotOwner where the store can tell.
        """
        ...

    def trim(self, number: int, keep: Collection[int]) -> None:
        """Take away the chunks before a checkpoint, but for those to `keep`, and older checkpoints.

        Only once a chunk was appended behind that checkpoint: then whoever claims later sees it.
        """
        ...

    def put_file(self, data: bytes) -> str:
        """Store bytes as an object of their own, under a name that was never used; returns the name."""
        ...

    def left_files(self) -> list[str]:
        """The files of this owner and of earlier ones, and what else those have left.

        Once a checkpoint of this owner counts, what that does not name will never be named.
        """
        ...

    def remove_files(self, names: Iterable[str]) -> None:
        """Take files away. One that is not there is no error."""
        ...

    def close(self) -> None:
        """Let go of the claim, so that somebody else can have it at once, and of connections."""
        ...
