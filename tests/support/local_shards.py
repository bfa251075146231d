"""A cluster in this process: some data directories as its shards, and a map that is never out of date."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Unpack

from quivermq.backend import Backend
from quivermq.cluster.backend import ClusterBackend
from quivermq.cluster.map import ClusterMap
from quivermq.cluster.placement import spread_over
from quivermq.engine import open_engine
from quivermq.errors import TopicExists
from quivermq.model.checks import needs_broker
from quivermq.model.topic_settings import TopicOptions
from quivermq.queue.connection import Connection
from quivermq.settings import Settings

SHARDS = 3


class LocalShards:
    """The shards of such a cluster; `backends` may be any."""

    def __init__(self, backends: Sequence[Backend], topics: dict[str, tuple[int, ...]]) -> None:
        self.backends = list(backends)
        self.topics = topics
        self.name = f"{len(backends)} shards"
        self.clock = backends[0].clock
        self.scheduler = backends[0].scheduler

    def map(self) -> ClusterMap:
        return ClusterMap(len(self.backends), dict(self.topics))

    def refresh(self) -> ClusterMap:
        return self.map()

    def backend(self, shard: int) -> Backend:
        return self.backends[shard]

    def prompt(self, shard: int) -> Backend:
        return self.backends[shard]

    def patient(self) -> "LocalShards":
        return LocalShards([each.patient() for each in self.backends], self.topics)

    def widen(self, topic: str, spread: int) -> Sequence[int]:
        there = self.topics.setdefault(topic, tuple(spread_over(topic, spread, len(self.backends))))
        if len(there) != spread:
            raise TopicExists(f"the topic {topic} is spread over {len(there)} shards")
        return there

    def narrow(self, topic: str) -> None:
        del self.topics[topic]

    def producer(self, *_: object) -> NoReturn:
        raise needs_broker("a producer")

    def consumer(self, *_: object) -> NoReturn:
        raise needs_broker("a consumer")

    def check_open(self) -> None:
        for each in self.backends:
            each.check_open()

    def interrupt(self) -> None:
        for each in self.backends:
            each.interrupt()

    def resume(self) -> None:
        for each in self.backends:
            each.resume()

    def close(self) -> None:
        for each in self.backends:
            each.close()


def open_local(
    path: Path,
    settings: Settings | None = None,
    topics: dict[str, tuple[int, ...]] | None = None,
    *,
    is_wide: bool = False,
    **given: Any,
) -> Connection:
    """A cluster over directories below a path. `topics` are those that are wide, to be kept by the caller.

    With `is_wide`, every topic that is created with partitions enough is.
    """
    engines = [open_engine(path / str(shard), settings, **given) for shard in range(SHARDS)]
    backend = ClusterBackend(LocalShards(engines, {} if topics is None else topics))
    return WideConnection(backend) if is_wide else Connection(backend)


class WideConnection(Connection):
    """Makes topics wide by default."""

    def create_topic(self, name: str, *, exist_ok: bool = False, **settings: Unpack[TopicOptions]) -> None:
        partitions = settings.get("partitions", 1)
        if isinstance(partitions, int) and partitions > 1:
            settings = {"spread": min(partitions, SHARDS), **settings}
        super().create_topic(name, exist_ok=exist_ok, **settings)
