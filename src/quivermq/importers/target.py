"""The queue that an import goes to, and the operations of it that an import uses."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from quivermq.backend import Backend
from quivermq.disk import Buffer
from quivermq.errors import TopicNotFound
from quivermq.frame import Frame
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.lanes import Priority
from quivermq.model.messages import Message, ProducerState, Put, Scheduled
from quivermq.model.operations import (
    AdoptDeadLetters,
    AdoptIds,
    AdoptProgress,
    AlterTopic,
    BeginProducer,
    CreateTopic,
    ListScheduled,
)
from quivermq.model.topic_settings import TopicSettings
from quivermq.queue.connection import Connection
from quivermq.settings import Durability


class LaneId(NamedTuple):
    """One log of a topic."""

    partition: int
    priority: Priority


class TargetTopic(NamedTuple):
    """A topic as it is: when it was made tells it from an earlier one of its name."""

    created_us: int
    settings: TopicSettings
    lanes: dict[LaneId, range]
    """The offsets of each lane that is in use."""
    dead_letters_of: str | None


def target_of(queue: Connection | None) -> "ImportTarget":
    """The queue that is open, or connected; with None, what a dry run goes to."""
    return ImportTarget(None if queue is None else queue.backend.patient())


class ImportTarget:
    """A queue, whoever keeps it. A dry run has none, and only looks."""

    def __init__(self, backend: Backend | None) -> None:
        self._backend = backend

    @property
    def _there(self) -> Backend:
        assert self._backend is not None, "a dry run only looks"
        return self._backend

    def look(self, topic: str) -> TargetTopic | None:
        """A topic; None when there is none."""
        if self._backend is None:
            return None
        try:
            view = self._backend.look(topic)
        except TopicNotFound:
            return None
        lanes = {LaneId(each.partition, each.priority): range(each.start, each.end) for each in view.lanes}
        return TargetTopic(view.created_us, view.settings, lanes, view.dead_letters_of)

    def create_topic(self, name: str, **settings: Any) -> None:
        self._there.perform(CreateTopic(name, False, settings))

    def alter_topic(self, name: str, **settings: Any) -> None:
        self._there.perform(AlterTopic(name, settings))

    def begin_producer(self, topic: str, producer_id: int) -> ProducerState:
        return self._there.perform(BeginProducer(topic, producer_id))

    def put_frame(
        self, topic: str, frame: bytes, partition: int, priority: Priority, durability: Durability
    ) -> Put:
        """The put of the frame's first message; the same when its producer repeats it."""
        return self._there.queue(topic, "default").put_frame(frame, partition, priority, durability)

    def put_many(self, topic: str, messages: Sequence[Message], durability: Durability) -> object:
        return self._there.queue(topic, "default").put_many(list(messages), durability)

    def frames(
        self, topic: str, partition: int, priority: Priority, start: int, end: int
    ) -> Iterator[Frame]:
        """The frames that hold these offsets."""
        return self._there.frames(topic, partition, priority, start, end)

    def scheduled(self, topic: str) -> list[Scheduled]:
        return self._there.queue(topic, "default").perform(ListScheduled(None))

    def adopt(
        self,
        topic: str,
        group: str,
        progress: Progress,
        *,
        partition: int,
        priority: Priority,
        expected: Progress | None = None,
    ) -> bool:
        return self._there.perform(AdoptProgress(topic, group, progress, partition, priority, expected))

    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        return self._there.perform(AdoptIds(topic, adopted))

    def adopt_dead_letters(self, topic: str, frame: Buffer, *, partition: int, priority: Priority) -> Put:
        return self._there.perform(AdoptDeadLetters(topic, frame, partition, priority))
