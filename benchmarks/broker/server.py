"""A server as the benchmarks see it: topics, what to send it, and what it says it has."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker.processes import program
from benchmarks.broker.request import Request
from benchmarks.shape import Shape
from quivermq.settings import Durability


class Consumer(ABC):
    """Somebody who takes batches of messages from a topic, on one connection."""

    @abstractmethod
    def take(self, count: int, batch: int, until: float) -> int:
        """Get and ack so many, a batch after the other, and return how many were had.

        Stops early at that moment of `time.perf_counter`.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""


class Server(ABC):
    """A server that runs."""

    name: str

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port

    @abstractmethod
    def create(self, topic: str) -> None:
        """Make a topic."""

    @abstractmethod
    def add_group(self, topic: str) -> None:
        """Make its group, `bench`, which is to have everything that is there."""

    @abstractmethod
    def drop(self, topic: str) -> None:
        """Remove it with everything in it."""

    @abstractmethod
    def stored(self, topic: str) -> int:
        """How many messages are in a topic."""

    @abstractmethod
    def settled(self, topic: str) -> int:
        """How many of them the group has acked."""

    @abstractmethod
    def publish(self, topic: str, shape: Shape = "plain") -> Request:
        """One message, and the answer that it is stored."""

    @abstractmethod
    def publish_many(self, topic: str, count: int, shape: Shape = "plain") -> Request:
        """So many messages in the way that is fastest for this server, and the answers to all."""

    @abstractmethod
    def consumer(self, topic: str, shape: Shape = "plain") -> Consumer:
        """A member of the group, who looks at all that messages of that shape have."""

    @abstractmethod
    def wait(self, topic: str) -> Request:
        """Wait for a message of the topic, which has none."""

    def check(self, topic: str, acknowledged: int, last: bytes) -> None:
        """Raise unless the server has exactly what it acknowledged; `last` is its last answer."""
        stored = self.stored(topic)
        if stored != acknowledged:
            raise RuntimeError(
                f"{self.name} acknowledged {acknowledged} messages and has {stored}; it last said {last!r}"
            )


@dataclass(frozen=True, slots=True)
class Kind:
    """A server that can be started: `start(directory, durability)`."""

    name: str
    program: str
    source: str
    """How to get the program."""
    start: Callable[[Path, Durability], AbstractContextManager[Server]]

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be started; None when it can."""
        return None if program(self.program) else f"there is no {self.program} here: {self.source}"
