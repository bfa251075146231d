"""The map of a cluster as its clients know it, and what they reach its shards by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from quivermq.backend import Backend
from quivermq.client.consuming.consumer import RemoteConsumer
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.producing.options import ProducerOptions
from quivermq.client.producing.producer import RemoteProducer
from quivermq.clock import Clock
from quivermq.errors import QuiverError
from quivermq.log.flusher import Scheduler
from quivermq.model.names import DEAD_LETTER_SUFFIX


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """Which shards there are, who serves them, and which topics are wide. Never changed."""

    shards: int
    topics: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The wide topics, each with its shards: partition p is on the one of index p % len."""
    urls: Mapping[int, str] = field(default_factory=dict)
    """Where each shard is served, of those that somebody owns."""
    revision: int = 0
    name: str = ""

    @classmethod
    def from_json(cls, document: object) -> "ClusterMap":
        """What `GET /v1/cluster` answers. Raises QuiverError for anything else."""
        try:
            return cls._of(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise QuiverError(f"this is no map of a cluster: {error!r}") from None

    @classmethod
    def _of(cls, document: Any) -> "ClusterMap":
        return cls(
            int(document["shards"]),
            {name: tuple(map(int, topic["shards"])) for name, topic in document["topics"].items()},
            {int(owner["shard"]): owner["url"] for owner in document["owners"] if owner["url"] is not None},
            int(document["revision"]),
            str(document.get("cluster", "")),
        )

    def wide_shards(self, topic: str) -> tuple[int, ...] | None:
        """The shards of a wide topic, or of the dead letters of one; None for any other topic."""
        return self.topics.get(topic) or self.topics.get(topic.removesuffix(DEAD_LETTER_SUFFIX))


class Shards(Protocol):
    """How a `ClusterBackend` reaches the shards of its cluster. Thread-safe."""

    @property
    def name(self) -> str:
        """The cluster, for people."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def scheduler(self) -> Scheduler: ...

    def map(self) -> ClusterMap:
        """The map as it was a moment ago."""
        ...

    def refresh(self) -> ClusterMap:
        """The map as it is now."""
        ...

    def backend(self, shard: int, /) -> Backend:
        """A shard, whoever serves it. Its calls wait for a new owner, as long as the client is patient."""
        ...

    def prompt(self, shard: int, /) -> Backend:
        """The same shard, whose calls raise Unavailable at once when nobody serves it."""
        ...

    def patient(self) -> "Shards":
        """The same for long work, which waits for some minutes."""
        ...

    def widen(self, topic: str, spread: int, /) -> Sequence[int]:
        """Decide which shards a wide topic is on. Raises TopicExists when it has another spread."""
        ...

    def narrow(self, topic: str, /) -> None:
        """Forget that a topic is wide."""
        ...

    def producer(self, topic: str, place: Sequence[int], options: ProducerOptions, /) -> RemoteProducer:
        """A producer to the shards of a topic. Raises InvalidRequest where there are no brokers."""
        ...

    def consumer(self, place: Sequence[int], options: ConsumerOptions, /) -> RemoteConsumer:
        """A member of a group in these shards. Raises InvalidRequest where there are no brokers."""
        ...

    def check_open(self) -> None: ...

    def interrupt(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...
