"""Where the queue's data lies: a data directory, or a broker that serves one. Both only look.

A place is cheap and can be pickled: it is sent to every task, and opens what it needs where it arrives.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from quivermq.errors import InvalidRequest
from quivermq.frame import Frame
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.settings import TopicSettings

# A partition is listed from its first moment on, for its normal lane; the other lanes once they are used.
NORMAL = "normal"


class Lane(NamedTuple):
    """One log of the queue: a priority of a partition of a topic."""

    topic: str
    partition: int
    priority: str

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}, priority {self.priority}"


class LaneBounds(NamedTuple):
    """What a lane holds now, as half-open offsets. What lies below `sealed` does not change any more."""

    start: int
    sealed: int
    end: int
    size_bytes: int


NOTHING = LaneBounds(0, 0, 0, 0)


class TopicView(NamedTuple):
    """One look at a topic: which one it is, how it is set, and what its lanes hold."""

    created_us: int
    settings: TopicSettings
    lanes: dict[Lane, LaneBounds]


class Place(Protocol):
    """All that reading the queue in bulk needs. Every method raises StorageFailed or Unreachable."""

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        ...

    def origins(self) -> dict[str, str | None]:
        """The same, each with the topic whose dead letters it has, if it has any."""
        ...

    def origin(self, topic: str) -> str | None:
        """The topic whose dead letters a topic has; None for a topic of its own."""
        ...

    def look(self, topic: str) -> TopicView:
        """A topic in one look: what the next three methods tell. Raises TopicNotFound."""
        ...

    def created_us(self, topic: str) -> int:
        """Tells a topic from an earlier one of its name that was deleted. Raises TopicNotFound."""
        ...

    def settings(self, topic: str) -> TopicSettings:
        """How a topic is set. Raises TopicNotFound."""
        ...

    def lanes(self, topic: str) -> dict[Lane, LaneBounds]:
        """The normal lane of each partition and the others in use, in order. Raises TopicNotFound."""
        ...

    def synced_ends(self, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:
        """Up to where each lane, from its `starts` on or from 0, survives power loss. Raises TopicNotFound.

        A broker tells what it has synced; the files of a directory are synced for this.
        """
        ...

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        """The first offset whose message is not older; the end when all are. Every one before it is."""
        ...

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        """Whole frames that overlap [start, end), in order; all of that range is there, or this raises.

        Raises OffsetOutOfRange when retention was faster or the log ends before `end`, and Corruption.
        """
        ...

    def removed(self, lane: Lane) -> OffsetSet:
        """Offsets taken out for everybody, as dead letters that went back. A broker hides them itself."""
        ...

    def close(self) -> None:
        """Let go of what was opened; whatever is asked next opens it again."""
        ...


def place_of(path: str | None = None, server: str | None = None, key: str | None = None) -> Place:
    """The place that a user means. Raises InvalidRequest unless it is exactly one."""
    if path is not None and server is not None:
        raise InvalidRequest("give `path` for a data directory or `server` for a broker, not both")
    if path is None and server is None:
        raise InvalidRequest(
            "say where the queue is: the option `path` for a data directory, or `server` for a broker"
        )
    if server is not None:
        from quivermq.spark.broker_place import BrokerPlace

        return BrokerPlace(server, key)
    if key is not None:
        raise InvalidRequest("a key is for a broker: leave the option `key` out for a data directory")
    assert path is not None
    from quivermq.spark.directory_place import DirectoryPlace

    return DirectoryPlace(path)
