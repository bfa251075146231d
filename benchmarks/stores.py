"""A queue as the benchmarks see it, and Quiver as one of them. The others are in peers.py.

The loops over messages are inside of each store, so that nobody is charged for a call in between.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import quivermq
from quivermq.settings import Durability

TOPIC = "bench"
_PAGE = 100_000


class Store(ABC):
    """An open queue. What a call did has the durability that the store was opened with when it returns."""

    @abstractmethod
    def put(self, values: Sequence[bytes]) -> None:
        """Put messages one by one. Stores that are opened for threads may be called by many."""

    @abstractmethod
    def take(self, count: int) -> list[bytes]:
        """Get messages, each settled before the next, and return their values."""

    @abstractmethod
    def values(self) -> list[bytes]:
        """All messages that were put and not settled, in order, without taking them."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""

    def put_batches(self, batches: Sequence[list[bytes]]) -> None:
        """Put batch after batch, each as a whole."""
        for batch in batches:
            self.put(batch)

    def take_batches(self, count: int, size: int) -> list[bytes]:
        """Like `take`, so many at a time."""
        raise NotImplementedError(f"{type(self).__name__} takes one by one")


# Opens the store that is, or will be, in a directory.
Open = Callable[[Path], Store]


class Quiver(Store):
    """A topic and one group."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.engine = quivermq.open(path)
        if TOPIC not in self.engine.topics():
            self.engine.create_topic(TOPIC, durability=durability)
        self.queue = self.engine.queue(TOPIC)

    def put(self, values: Sequence[bytes]) -> None:
        put = self.queue.put
        for value in values:
            put(value)
        self._flush()

    def put_batches(self, batches: Sequence[list[bytes]]) -> None:
        put_many = self.queue.put_many
        for batch in batches:
            put_many(batch)
        self._flush()

    def take(self, count: int) -> list[bytes]:
        get, values = self.queue.get, []
        for _ in range(count):
            message = get()
            assert message is not None
            values.append(message.value)
            message.ack()
        self._flush()
        return values

    def take_batches(self, count: int, size: int) -> list[bytes]:
        queue = self.queue
        values: list[bytes] = []
        while len(values) < count:
            messages = queue.get_many(size)
            assert messages
            values += [message.value for message in messages]
            queue.ack(messages)
        self._flush()
        return values

    def values(self) -> list[bytes]:
        stats = self.queue.stats()
        assert stats.in_flight == stats.retrying == stats.delayed == 0
        values: list[bytes] = []
        first = self.queue.peek(1)
        position = first[0].offset if first else 0
        while len(values) < stats.pending:
            records = self.queue.read(0, position, _PAGE)
            values += [record.value for record in records]
            position = records[-1].offset + 1
        return values

    def close(self) -> None:
        self.engine.close()

    def _flush(self) -> None:
        """What is still in a buffer has cost nothing yet."""
        for log in list(self.engine._directory._logs.values()):
            log.flush()


class QuiverPop(Quiver):
    """The same, but a message is settled by getting it, as in queues that have no acks."""

    def take(self, count: int) -> list[bytes]:
        pop, values = self.queue.pop, []
        for _ in range(count):
            message = pop()
            assert message is not None
            values.append(message.value)
        self._flush()
        return values
