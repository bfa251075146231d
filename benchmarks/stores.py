"""A queue as the benchmarks see it, and Quiver as one of them. The others are in peers.py.

The loops over messages are inside of each store, so that nobody is charged for a call in between. A message
that is put is bytes or, in a store for real ones, a `quivermq.Message`; `messages.contents` compares them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import quivermq
from benchmarks.messages import AnyMessage, call_each, content, contents
from benchmarks.shape import Shape
from quivermq.settings import Durability

TOPIC = "bench"
# Where the messages of the topic lie in the data directory.
TOPIC_LOG = f"topics/{TOPIC}/p0/normal"
_PAGE = 100_000


class Store(ABC):
    """An open queue. What a call did has the durability that the store was opened with when it returns."""

    @abstractmethod
    def put(self, messages: Sequence[Any]) -> None:
        """Put messages one by one. Stores that are opened for threads may be called by many."""

    @abstractmethod
    def take(self, count: int) -> list[Any]:
        """Get messages, each settled before the next, and return their contents."""

    @abstractmethod
    def values(self) -> list[Any]:
        """The contents of all that were put and not settled, in order, without taking them."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""

    def put_batches(self, batches: Sequence[list[Any]]) -> None:
        """Put batch after batch, each as a whole."""
        for batch in batches:
            self.put(batch)

    def take_batches(self, count: int, size: int) -> list[Any]:
        """Like `take`, so many at a time."""
        raise NotImplementedError(f"{type(self).__name__} takes one by one")


# Opens the store that is, or will be, in a directory.
Open = Callable[[Path], Store]


class Quiver(Store):
    """A topic and one group, for messages of one shape."""

    def __init__(self, path: Path, durability: Durability, shape: Shape = "plain") -> None:
        self._is_real = shape == "real"
        self._is_buffered = durability == "buffered"
        self.engine = quivermq.open(path)
        if TOPIC not in self.engine.topics():
            self.engine.create_topic(TOPIC, durability=durability)
        self.queue = self.engine.queue(TOPIC)

    def put(self, messages: Sequence[AnyMessage]) -> None:
        last = len(messages) - 1 if self._is_buffered else len(messages)
        call_each(self.queue.put, messages[:last])
        # What is still in the buffer has cost nothing yet: the last one has all of it written.
        call_each(partial(self.queue.put, durability="os"), messages[last:])

    def put_batches(self, batches: Sequence[list[AnyMessage]]) -> None:
        put_many = self.queue.put_many
        for batch in batches:
            put_many(batch)

    def take(self, count: int) -> list[Any]:
        return self._taken(self.queue.get, count, is_acked=True)

    def take_batches(self, count: int, size: int) -> list[Any]:
        queue, is_real = self.queue, self._is_real
        taken: list[Any] = []
        while len(taken) < count:
            messages = queue.get_many(size)
            assert messages
            if is_real:
                taken += map(content, messages)
            else:
                taken += [message.value for message in messages]
            queue.ack(messages)
        return taken

    def values(self) -> list[Any]:
        stats = self.queue.stats()
        assert stats.in_flight == stats.retrying == stats.delayed == 0
        found: list[quivermq.StoredMessage] = []
        first = self.queue.peek(1)
        offset = first[0].offset if first else 0
        while len(found) < stats.pending:
            found += self.queue.read(0, offset, _PAGE)
            offset = found[-1].offset + 1
        return contents(found) if self._is_real else [message.value for message in found]

    def close(self) -> None:
        self.engine.close()

    def _taken(
        self, get: Callable[[], quivermq.Delivery | None], count: int, *, is_acked: bool
    ) -> list[Any]:
        taken: list[Any] = []
        is_real = self._is_real
        for _ in range(count):
            message = get()
            assert message is not None
            taken.append(content(message) if is_real else message.value)
            if is_acked:
                message.ack()
        return taken


class QuiverPop(Quiver):
    """The same, but a message is settled by getting it, as in queues that have no acks."""

    def take(self, count: int) -> list[Any]:
        return self._taken(self.queue.pop, count, is_acked=False)
