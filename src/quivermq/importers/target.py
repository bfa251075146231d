"""Where an import goes: a queue that is open here, or a broker. Both are asked in the same words."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from quivermq.client import Connection
from quivermq.client.core.logs import LogCalls
from quivermq.client.core.publishing import Publishing
from quivermq.client.core.retry import Retry
from quivermq.client.core.topics import TopicCalls
from quivermq.engine import Engine
from quivermq.errors import OffsetOutOfRange, TopicNotFound
from quivermq.frame import Frame
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.lanes import LANES, lane_number
from quivermq.model.messages import Message, ProducerState, Scheduled
from quivermq.model.topic_settings import TopicSettings

# A broker that is started anew, or whose backlog is full, is waited for some minutes.
_RETRY = Retry(retries=40, is_patient=True)


class LaneId(NamedTuple):
    """One log of a topic."""

    partition: int
    priority: str


class TargetTopic(NamedTuple):
    """A topic as it is: when it was made tells it from an earlier one of its name."""

    created_us: int
    settings: TopicSettings
    lanes: dict[LaneId, range]
    """The offsets of each lane that is in use."""
    dead_letters_of: str | None


class ImportTarget(Protocol):
    """What an import needs of a queue. What it puts is on stable storage when it returns."""

    def look(self, topic: str) -> TargetTopic | None:
        """A topic; None when there is none."""
        ...

    def create(self, topic: str, **settings: Any) -> None:
        """Raises TopicExists."""
        ...

    def alter(self, topic: str, **settings: object) -> None:
        """Raises InvalidSettings."""
        ...

    def begin(self, topic: str, producer_id: int) -> ProducerState: ...

    def put_frame(self, topic: str, frame: bytes, lane: LaneId) -> int:
        """The offset of the frame's first message; the same when its producer repeats it."""
        ...

    def put_dead_letters(self, topic: str, frame: bytes, lane: LaneId) -> int:
        """The same of a frame of messages that the source gave up."""
        ...

    def put_delayed(self, topic: str, messages: Sequence[Message]) -> None: ...

    def frames(self, topic: str, lane: LaneId, start: int, end: int) -> Iterator[Frame]:
        """The frames that hold these offsets."""
        ...

    def scheduled(self, topic: str) -> list[Scheduled]: ...

    def adopt(
        self, topic: str, group: str, lane: LaneId, progress: Progress, expected: Progress | None
    ) -> bool: ...

    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int: ...


def target_of(queue: Engine | Connection) -> ImportTarget:
    """What is open here, or connected."""
    return EngineTarget(queue) if isinstance(queue, Engine) else BrokerTarget(queue)


class NoTarget:
    """Nothing: what a dry run may go to. It is never asked for more than what there is."""

    def look(self, topic: str) -> TargetTopic | None:  # noqa: ARG002 - There is no topic of any name.
        return None

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a dry run does not {name}")


class EngineTarget:
    """A queue of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def look(self, topic: str) -> TargetTopic | None:
        hosted = self._engine.find(topic)
        if hosted is None:
            return None
        lanes = {
            LaneId(partition, LANES[lane]): range(log.start, log.end)
            for (partition, lane), log in hosted.topic.lanes().items()
        }
        return TargetTopic(self._engine.created_us(topic), hosted.settings, lanes, hosted.origin)

    def create(self, topic: str, **settings: Any) -> None:
        self._engine.create_topic(topic, **settings)

    def alter(self, topic: str, **settings: object) -> None:
        self._engine.alter_topic(topic, **settings)

    def begin(self, topic: str, producer_id: int) -> ProducerState:
        return self._engine.begin_producer(topic, producer_id)

    def put_frame(self, topic: str, frame: bytes, lane: LaneId) -> int:
        put = self._engine.queue(topic).put_frame(
            frame, partition=lane.partition, priority=lane.priority, durability="fsync"
        )
        assert put.offset is not None, "a frame is never delayed"
        return put.offset

    def put_dead_letters(self, topic: str, frame: bytes, lane: LaneId) -> int:
        put = self._engine.adopt_dead_letters(
            topic, frame, partition=lane.partition, priority=lane.priority
        )
        assert put.offset is not None, "a frame is never delayed"
        return put.offset

    def put_delayed(self, topic: str, messages: Sequence[Message]) -> None:
        self._engine.queue(topic).put_many(messages, durability="fsync")

    def frames(self, topic: str, lane: LaneId, start: int, end: int) -> Iterator[Frame]:
        log = self._engine.hosted(topic).topic.partitions[lane.partition].logs[lane_number(lane.priority)]
        for frame in log.frames(start) if log is not None and start < end else ():
            if frame.header.base_offset >= end:
                return
            yield frame

    def scheduled(self, topic: str) -> list[Scheduled]:
        return self._engine.queue(topic).scheduled()

    def adopt(
        self, topic: str, group: str, lane: LaneId, progress: Progress, expected: Progress | None
    ) -> bool:
        partition, priority = lane
        return self._engine.adopt(
            topic, group, progress, partition=partition, priority=priority, expected=expected
        )

    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        return self._engine.adopt_ids(topic, adopted)


class BrokerTarget:
    """A queue that somebody serves."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._run = connection.shell.run
        # One that cannot be reached at all is told of at once; patience is for one that was there.
        connection.topics()
        self._calls = TopicCalls(_RETRY)
        self._logs = LogCalls(self._calls)

    def look(self, topic: str) -> TargetTopic | None:
        try:
            told = self._run(self._logs.topic(topic))
        except TopicNotFound:
            return None
        lanes = {LaneId(each.partition, each.priority): range(each.start, each.end) for each in told.lanes}
        return TargetTopic(told.created_us, told.settings, lanes, told.dead_letters_of)

    def create(self, topic: str, **settings: Any) -> None:
        self._connection.create_topic(topic, **settings)

    def alter(self, topic: str, **settings: object) -> None:
        self._connection.alter_topic(topic, **settings)

    def begin(self, topic: str, producer_id: int) -> ProducerState:
        return self._run(self._calls.begin_producer(topic, producer_id))

    def put_frame(self, topic: str, frame: bytes, lane: LaneId) -> int:
        publishing = Publishing(self._calls, topic)
        put = self._run(
            publishing.put_frame(frame, lane.partition, lane.priority, "fsync", is_repeatable=True)
        )
        assert put.offset is not None, "a frame is never delayed"
        return put.offset

    def put_dead_letters(self, topic: str, frame: bytes, lane: LaneId) -> int:
        put = self._run(
            self._calls.adopt_dead_letters(topic, frame, partition=lane.partition, priority=lane.priority)
        )
        assert put.offset is not None, "a frame is never delayed"
        return put.offset

    def put_delayed(self, topic: str, messages: Sequence[Message]) -> None:
        self._run(Publishing(self._calls, topic).put_many(messages, "fsync"))

    def frames(self, topic: str, lane: LaneId, start: int, end: int) -> Iterator[Frame]:
        while start < end:
            page = self._run(self._logs.frames(topic, lane.partition, lane.priority, start, end - start))
            if page.next <= start:
                raise OffsetOutOfRange(start, start=page.start, end=page.end)
            for frame in page.frames:
                if frame.header.base_offset < end:
                    yield frame
            start = page.next

    def scheduled(self, topic: str) -> list[Scheduled]:
        return self._connection.queue(topic).scheduled()

    def adopt(
        self, topic: str, group: str, lane: LaneId, progress: Progress, expected: Progress | None
    ) -> bool:
        partition, priority = lane
        return self._connection.adopt(
            topic, group, progress, partition=partition, priority=priority, expected=expected
        )

    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        return self._run(self._calls.adopt_ids(topic, adopted))
