"""The options of a write, checked."""

import json
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, cast

from quivermq.clock import Clock, SystemClock
from quivermq.errors import InvalidRequest
from quivermq.frame import Codec, codec_named
from quivermq.frame.codec import AnyCodec, compression_of
from quivermq.log.entries import check_durability
from quivermq.model.names import check_topic_name
from quivermq.model.topic_settings import TopicSettings
from quivermq.reading.reader import QueueReader
from quivermq.settings import Durability
from quivermq.spark.options import SourceOptions

FRAME_MESSAGES = 10_000
_FRAME_MESSAGES_MAX = 1_000_000
_WRITE_ID_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write, and how. Can be pickled."""

    reader: QueueReader
    topic: str | None = None
    durability: Durability | None = None
    codec: Codec | None = None
    """Instead of that of the topic. Which bodies are too small for any, only the topic says."""
    batch_messages: int = FRAME_MESSAGES
    rate_limit: int | None = None
    rate_limit_tasks: int = 1
    write_id: str | None = None
    begun_us: int = field(default_factory=lambda: SystemClock().now_us(), compare=False)
    """When the driver made them, which is before any task of this run."""

    @classmethod
    def of(cls, options: SourceOptions) -> "SinkOptions":
        """What was given. Raises InvalidRequest."""
        reader, topic = options.reader(), options.text("topic")
        if topic is not None:
            check_topic_name(topic)
        codec, durability = options.text("compression"), options.text("durability")
        if durability is not None:
            check_durability(durability)
        messages, write_id = options.number("batchMessages"), options.text("writeId")
        if messages is not None and messages > _FRAME_MESSAGES_MAX:
            raise InvalidRequest(
                f"the option `batchMessages` is at most {_FRAME_MESSAGES_MAX}, not {messages}"
            )
        if write_id is not None and len(write_id) > _WRITE_ID_CHARACTERS_MAX:
            raise InvalidRequest(f"the option `writeId` has at most {_WRITE_ID_CHARACTERS_MAX} characters")
        return cls(
            reader,
            topic,
            cast(Durability | None, durability),
            None if codec is None else codec_named(codec),
            messages or FRAME_MESSAGES,
            options.number("rateLimit"),
            options.number("rateLimitTasks") or 1,
            write_id,
        )

    def compression(self, settings: TopicSettings) -> AnyCodec:
        """How frames for a topic of these settings are compressed."""
        own = codec_named(settings.codec)
        codec = own if self.codec is None else self.codec
        # A level is meant for one codec.
        level = settings.compression_level if codec is own else None
        return compression_of(codec.name.lower(), level, settings.compression_bytes_min)

    @property
    def task_rate(self) -> float | None:
        """How many messages a second one of the tasks may write that do so at the same time."""
        return None if self.rate_limit is None else self.rate_limit / self.rate_limit_tasks


# A frame is sent at once: with this share of a second in it, the rate is even enough.
_FRAMES_PER_SECOND = 10


class Throttle:
    """Used by one thread."""

    def __init__(self, messages_per_second: float | None, clock: Clock | None = None) -> None:
        self._rate = messages_per_second
        self._clock = SystemClock() if clock is None else clock
        self._due_at = self._clock.monotonic()

    def frame_messages(self, usual: int) -> int:
        """How many messages a frame should have."""
        if self._rate is None:
            return usual
        return max(1, min(usual, int(self._rate / _FRAMES_PER_SECOND)))

    def wait_s(self, messages: int) -> float:
        """How long to wait before so many are sent. What was not used of the past is lost."""
        if self._rate is None:
            return 0.0
        now = self._clock.monotonic()
        start = max(now, self._due_at)
        self._due_at = start + messages / self._rate
        return start - now

    def wait(self, messages: int) -> None:
        """Wait that long."""
        if (seconds := self.wait_s(messages)) > 0:
            time.sleep(seconds)


_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


class TaskPart(NamedTuple):
    """The rows of one task, in one batch of one query, or in the only batch of a plain write."""

    write: str
    batch: int
    task: int

    def producer_id(self, topic: str, number: int = 0) -> int:
        """What the frames of this part are known by in a topic."""
        identity = json.dumps([*self, topic, number])
        return int.from_bytes(blake2b(identity.encode(), digest_size=8).digest(), "little") or 1


def is_repeated() -> bool:
    """Whether Spark has begun the task that runs here before, in this run."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return task is not None and task.attemptNumber() > 0


def current_part(write: str | None) -> TaskPart:
    """The part of the task that runs here; `write` is None for a stream, whose query has an id itself."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "only a task of Spark writes"
    if write is not None:
        return TaskPart(write, 0, task.partitionId())
    query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
    assert query is not None, "a stream has an id"
    assert batch is not None, "a stream numbers its batches"
    return TaskPart(query, int(batch), task.partitionId())
