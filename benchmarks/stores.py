"""A queue as the benchmarks see it, and Quiver as one of them. The others are in peers.py.

The loops over messages are inside of each store, so that nobody is charged for a call in between.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import batched
from pathlib import Path

import quivermq
from quivermq.settings import Durability

TOPIC = "bench"


class Store(ABC):
    """An open queue in a directory. A put or take that has returned is as durable as the store was opened."""

    @abstractmethod
    def put(self, values: Sequence[bytes]) -> None:
        """Put messages one by one."""

    @abstractmethod
    def take(self, count: int) -> list[bytes]:
        """Get messages and settle each before the next, and return their values."""

    @abstractmethod
    def unfinished(self) -> int:
        """How many messages were put and not yet settled."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the directory."""

    def put_batches(self, batches: Sequence[list[bytes]]) -> None:
        """Put each batch at once."""
        raise NotImplementedError(f"{type(self).__name__} has no such call")

    def take_batches(self, count: int, size: int) -> list[bytes]:
        """Like `take`, but so many at a time."""
        raise NotImplementedError(f"{type(self).__name__} has no such call")


# Opens the store in a directory, which is new or has been opened so before.
Open = Callable[[Path], Store]
