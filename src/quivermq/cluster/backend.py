"""A cluster as a backend: each topic where it is, what is about all of them asked of every shard."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from quivermq.backend import Backend, QueueBackend
from quivermq.client.consuming.consumer import RemoteConsumer
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.producing.options import ProducerOptions
from quivermq.client.producing.producer import RemoteProducer
from quivermq.clock import Clock, SteadyClock
from quivermq.cluster.awaiting import Awaiting
from quivermq.cluster.making import ClusterTopics
from quivermq.cluster.map import Shards
from quivermq.cluster.merging import merged_compacted, merged_report, merged_state, merged_stats
from quivermq.cluster.places import Places
from quivermq.cluster.queue import ClusterQueue
from quivermq.cluster.together import Together
from quivermq.errors import InvalidRequest
from quivermq.frame import Frame
from quivermq.log.flusher import Scheduler
from quivermq.model import operations
from quivermq.model.backups import Backup
from quivermq.model.lanes import Priority
from quivermq.model.messages import ProducerState, Put
from quivermq.model.names import is_pattern
from quivermq.model.operations import Operation, TopicExtent
from quivermq.model.stats import Compacted, EngineStats, Replaced, Report, TopicInfo

T = TypeVar("T")


class ClusterBackend:
    """Made over whatever reaches the shards. Thread-safe."""

    directory: Path | None = None

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.together = Together()
        self.places = Places(shards)
        self.topics = ClusterTopics(shards, self.places, self.together)
        self.steady_clock = SteadyClock(shards.clock)
        self._awaiting: WeakSet[Awaiting] = WeakSet()

    @property
    def name(self) -> str:
        return self.shards.name

    @property
    def clock(self) -> Clock:
        return self.shards.clock

    @property
    def scheduler(self) -> Scheduler:
        return self.shards.scheduler

    def queue(self, topic: str, group: str) -> QueueBackend:
        return ClusterQueue(self, topic, group)

    def opened(self, awaiting: Awaiting) -> None:
        """Let somebody go who waits, when this is closed."""
        self._awaiting.add(awaiting)

    def producer(self, topic: str, options: ProducerOptions) -> RemoteProducer:
        return self.shards.producer(topic, self.topics.ensure(topic), options)

    def consumer(self, options: ConsumerOptions) -> RemoteConsumer:
        places = self.places
        each = [places.all() if is_pattern(topic) else places.of(topic) for topic in options.topics]
        return self.shards.consumer(sorted({shard for place in each for shard in place}), options)

    def patient(self) -> "ClusterBackend":
        return ClusterBackend(self.shards.patient())

    def perform(self, operation: Operation[T]) -> T:
        self.check_open()
        answer: T = _METHODS[type(operation)](self, operation)
        return answer

    def frames(
        self, topic: str, partition: int, priority: Priority, start: int, end: int
    ) -> Iterator[Frame]:
        """Whole frames that hold these offsets, as they are stored. Raises OffsetOutOfRange."""
        return self._of_partition(topic, partition).frames(topic, partition, priority, start, end)

    def _of_partition(self, topic: str, partition: int) -> Backend:
        return self.shards.backend(self.places.of_partition(topic, partition))

    def check_open(self) -> None:
        """Raise Closing once the connection was closed."""
        self.shards.check_open()

    def interrupt(self) -> None:
        """Let whatever waits end soon. A signal handler may call this at any moment."""
        self.shards.interrupt()

    def resume(self) -> None:
        """Let the calls be made that are left to make before everything ends."""
        self.shards.resume()

    def close(self) -> None:
        """End everything that runs, and let go of every shard."""
        for awaiting in list(self._awaiting):
            awaiting.close()
        self.shards.close()
        self.together.close()

    # Operations.

    def _create(self, operation: operations.CreateTopic) -> None:
        self.topics.create(operation.topic, operation.exist_ok, operation.settings)

    def _alter(self, operation: operations.AlterTopic) -> None:
        self.topics.alter(operation.topic, operation.settings)

    def _delete(self, operation: operations.DeleteTopic) -> None:
        self.topics.delete(operation.topic)

    def _list(self, _: operations.ListTopics) -> list[str]:
        return self.topics.list()

    def _describe(self, operation: operations.DescribeTopic) -> TopicInfo:
        return self.topics.describe(operation.topic)

    def _extent(self, operation: operations.GetExtent) -> TopicExtent:
        return self.topics.extent(operation.topic)

    def _groups(self, operation: operations.ListGroups) -> list[str]:
        return sorted({group for groups in self._each_of(operation.topic, operation) for group in groups})

    def _delete_group(self, operation: operations.DeleteGroup) -> bool:
        deleted: list[bool] = self._each_of(operation.topic, operation)
        return any(deleted)

    def _begin_producer(self, operation: operations.BeginProducer) -> ProducerState:
        """The same epoch everywhere: a shard that gave a lower one would let an earlier producer in."""
        place = self.topics.ensure(operation.topic)
        states = {shard: self.shards.backend(shard).perform(operation) for shard in place}
        highest = max(state.epoch for state in states.values())
        for shard in place:
            while states[shard].epoch < highest:
                states[shard] = self.shards.backend(shard).perform(operation)
        return merged_state(list(states.values()))

    def _adopt(self, operation: operations.AdoptProgress) -> bool:
        return self._of_partition(operation.topic, operation.partition).perform(operation)

    def _adopt_ids(self, operation: operations.AdoptIds) -> int:
        place, held = self.places.of(operation.topic), 0
        for index, shard in enumerate(place):
            own = [each for each in operation.adopted if each.partition % len(place) == index]
            # Also without any: whether there is such a topic, the shard says.
            if own or not operation.adopted:
                held += self.shards.backend(shard).perform(operations.AdoptIds(operation.topic, own))
        return held

    def _adopt_dead_letters(self, operation: operations.AdoptDeadLetters) -> Put:
        return self._of_partition(operation.topic, operation.partition).perform(operation)

    def _replace_segment(self, operation: operations.ReplaceSegment) -> Replaced:
        return self._of_partition(operation.topic, operation.partition).perform(operation)

    def _on_all(self, operation: Operation[None]) -> None:
        self._each(operation)

    def _use_archive(self, operation: operations.UseArchive) -> None:
        """A relative path begins in the directory of a shard, and may be there in some of them only."""
        self.together.of_known(
            self.places.all(), lambda shard: self.shards.backend(shard).perform(operation)
        )

    def _stats(self, operation: operations.GetStats) -> EngineStats:
        return merged_stats(self._each(operation))

    def _compact(self, operation: operations.Compact) -> Compacted:
        return merged_compacted(self._each(operation))

    def _verify(self, operation: operations.Verify) -> Report:
        return merged_report(self._each(operation))

    def _backup(self, _: operations.MakeBackup) -> Backup:
        raise InvalidRequest("a cluster is not backed up as a whole: copies of its bucket keep what it has")

    def _each(self, operation: Operation[T]) -> list[T]:
        """What every shard answers."""
        return self.together.of_each(
            self.places.all(), lambda shard: self.shards.backend(shard).perform(operation)
        )

    def _each_of(self, topic: str, operation: Operation[T]) -> list[T]:
        """What the shards of a topic answer."""
        return self.together.of_each(
            self.places.of(topic), lambda shard: self.shards.backend(shard).perform(operation)
        )


_METHODS: dict[type[Operation[Any]], Callable[..., Any]] = {
    operations.CreateTopic: ClusterBackend._create,
    operations.AlterTopic: ClusterBackend._alter,
    operations.DeleteTopic: ClusterBackend._delete,
    operations.ListTopics: ClusterBackend._list,
    operations.DescribeTopic: ClusterBackend._describe,
    operations.GetExtent: ClusterBackend._extent,
    operations.ListGroups: ClusterBackend._groups,
    operations.DeleteGroup: ClusterBackend._delete_group,
    operations.BeginProducer: ClusterBackend._begin_producer,
    operations.AdoptProgress: ClusterBackend._adopt,
    operations.AdoptIds: ClusterBackend._adopt_ids,
    operations.AdoptDeadLetters: ClusterBackend._adopt_dead_letters,
    operations.ReplaceSegment: ClusterBackend._replace_segment,
    operations.Sync: ClusterBackend._on_all,
    operations.GetStats: ClusterBackend._stats,
    operations.Compact: ClusterBackend._compact,
    operations.UseArchive: ClusterBackend._use_archive,
    operations.Verify: ClusterBackend._verify,
    operations.MakeBackup: ClusterBackend._backup,
}
