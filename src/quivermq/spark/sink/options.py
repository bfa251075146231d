"""The options of a write, checked."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from quivermq.clock import SystemClock
from quivermq.errors import InvalidRequest
from quivermq.frame import Codec, codec_named
from quivermq.frame.codec import AnyCodec, compression_of
from quivermq.log.limits import check_durability
from quivermq.settings import Durability
from quivermq.spark.broker_place import BrokerPlace
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.options import SourceOptions
from quivermq.spark.sink.gathering import FRAME_MESSAGES
from quivermq.topic.names import check_topic_name
from quivermq.topic.settings import TopicSettings

_FRAME_MESSAGES_MAX = 1_000_000
_WRITE_ID_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write, and how. Can be pickled."""

    place: BrokerPlace | DirectoryPlace
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
        place, topic = options.place(), options.text("topic")
        assert isinstance(place, BrokerPlace | DirectoryPlace)
        if topic is not None:
            check_topic_name(topic)
        codec = options.text("compression")
        return cls(
            place,
            topic,
            _durability(options.text("durability")),
            None if codec is None else codec_named(codec),
            _frame_messages(options.number("batchMessages")),
            options.number("rateLimit"),
            options.number("rateLimitTasks") or 1,
            _write_id(options.text("writeId")),
        )

    @property
    def directory(self) -> Path | None:
        """The data directory to write to; None where it is a broker."""
        return self.place.path if isinstance(self.place, DirectoryPlace) else None

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


def _durability(word: str | None) -> Durability | None:
    if word is None:
        return None
    check_durability(word)
    return cast(Durability, word)


def _frame_messages(given: int | None) -> int:
    if given is not None and given > _FRAME_MESSAGES_MAX:
        raise InvalidRequest(f"the option `batchMessages` is at most {_FRAME_MESSAGES_MAX}, not {given}")
    return FRAME_MESSAGES if given is None else given


def _write_id(given: str | None) -> str | None:
    if given is not None and len(given) > _WRITE_ID_CHARACTERS_MAX:
        raise InvalidRequest(f"the option `writeId` has at most {_WRITE_ID_CHARACTERS_MAX} characters")
    return given
