"""`ObjectStore`: the few things that are asked of a bucket. An object is written once and never changed."""

from collections.abc import Iterable
from typing import Protocol

from quivermq.shared.chunk import damaged


class ObjectStore(Protocol):
    """Named objects. Thread-safe.

    Every operation may raise StoreUnreachable, after which it may or may not have been done, or be done
    only later; and StoreDenied or StoreNotFound, which time does not heal.
    """

    def put(self, name: str, data: bytes) -> None:
        """Store an object under a name that nobody else uses."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Store an object unless there is one of that name; whether it was stored.

        False may also mean that an earlier attempt of the same call was: the caller looks what is there.
        """
        ...

    def get(self, name: str, bytes_max: int) -> bytes | None:
        """An object, None when there is none. Raises DamagedChunk for one that is larger than that."""
        ...

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """So many bytes of an object from a position on, None when there is none of that name.

        Fewer, or DamagedChunk, where the object ends before.
        """
        ...

    def names(self, prefix: str) -> list[str]:
        """The sorted names of all objects that begin so."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """The same names, each with how many bytes the object has."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Take objects away. One that is not there is no error."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def needed(store: ObjectStore, name: str, bytes_max: int) -> bytes:
    """An object that has to be there. Raises DamagedChunk when it is not, or is larger than that."""
    data = store.get(name, bytes_max)
    if data is None:
        raise damaged(name, "it is not there")
    return data


def needed_range(store: ObjectStore, name: str, start: int, length: int) -> bytes:
    """Bytes of an object that have to be there. Raises DamagedChunk when they are not."""
    data = store.get_range(name, start, length)
    if data is None:
        raise damaged(name, "it is not there")
    if len(data) != length:
        raise damaged(name, f"it has {len(data)} of the {length} bytes from {start} on")
    return data
