"""The queue that an import goes to, and the operations of it that an import uses."""

from collections.abc import Iterator, Sequence
from typing import Any

from quivermq.backend import Backend
from quivermq.disk import Buffer
from quivermq.errors import TopicNotFound
from quivermq.frame import Frame
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.lanes import Lane
from quivermq.model.messages import Message, ProducerState, Put, Scheduled
from quivermq.model.operations import (
    AdoptDeadLetters,
    AdoptIds,
    AdoptProgress,
    AlterTopic,
    BeginProducer,
    CreateTopic,
    GetExtent,
    ListScheduled,
    TopicExtent,
)
from quivermq.queue.connection import Connection
from quivermq.settings import Durability


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

    def look(self, topic: str) -> TopicExtent | None:
        """A topic; None when there is none."""
        if self._backend is None:
            return None
        try:
            return self._backend.perform(GetExtent(topic))
        except TopicNotFound:
            return None

    def create_topic(self, name: str, **settings: Any) -> None:
        self._there.perform(CreateTopic(name, False, settings))

    def alter_topic(self, name: str, **settings: Any) -> None:
        self._there.perform(AlterTopic(name, settings))

    def begin_producer(self, topic: str, producer_id: int) -> ProducerState:
        return self._there.perform(BeginProducer(topic, producer_id))

    def put_frame(self, lane: Lane, frame: bytes, durability: Durability) -> Put:
        """The put of the frame's first message; the same when its producer repeats it."""
        topic, partition, priority = lane
        return self._there.queue(topic, "default").put_frame(frame, partition, priority, durability)

    def put_many(self, topic: str, messages: Sequence[Message], durability: Durability) -> object:
        return self._there.queue(topic, "default").put_many(list(messages), durability)

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        """The frames that hold these offsets."""
        return self._there.frames(*lane, start, end)

    def scheduled(self, topic: str) -> list[Scheduled]:
        return self._there.queue(topic, "default").perform(ListScheduled(None))

    def adopt(self, lane: Lane, group: str, progress: Progress, expected: Progress | None = None) -> bool:
        return self._there.perform(
            AdoptProgress(lane.topic, group, progress, lane.partition, lane.priority, expected)
        )

    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        return self._there.perform(AdoptIds(topic, adopted))

    def adopt_dead_letters(self, lane: Lane, frame: Buffer) -> Put:
        return self._there.perform(AdoptDeadLetters(lane.topic, frame, lane.partition, lane.priority))
