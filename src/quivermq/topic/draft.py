"""What a topic lets in, also before it exists."""

from collections.abc import Sequence

from quivermq.clock import SteadyClock
from quivermq.disk import Buffer
from quivermq.errors import InvalidRequest
from quivermq.frame import Frame, Header
from quivermq.log.entries import check_foreign_frame, parse_only
from quivermq.model.checks import check_partition
from quivermq.model.messages import Message
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.incoming import Batch, check_messages
from quivermq.topic.transfer import TRANSFER_EPOCH


class Draft:
    """The settings of a topic, and what they let in."""

    def __init__(self, settings: TopicSettings, limits: StorageSettings, clock: SteadyClock) -> None:
        self.settings = settings
        self.limits = limits
        self._clock = clock

    def checked(self, messages: Sequence[bytes | Message]) -> Batch:
        """The messages as they will be stored. Raises InvalidRequest."""
        return check_messages(messages, self.settings, self.limits, self._clock)

    def parse(self, frame: Buffer) -> Frame:
        """The frame that the bytes are, checked in full. Raises InvalidFrame, MessageTooLarge."""
        if not isinstance(frame, bytes | bytearray | memoryview):
            raise InvalidRequest(f"a frame is bytes, not a {type(frame).__name__}")
        parsed = parse_only(frame, self.limits)
        check_foreign_frame(parsed, self.limits)
        return parsed

    def check_frame(self, frame: Buffer, partition: int | None) -> None:
        """Raise InvalidRequest when the frame could not be stored there."""
        self.check_producer(self.parse(frame).header, partition)

    def check_producer(self, header: Header, partition: int | None) -> None:
        """Raise InvalidRequest when a producer does not say what it has to."""
        check_partition(partition, self.settings)
        if header.producer_id and partition is None:
            raise InvalidRequest("a producer with an id says which partition its frames are for")
        if header.producer_epoch == TRANSFER_EPOCH:
            raise InvalidRequest(f"a producer's epoch is below {TRANSFER_EPOCH}: start it with a new id")
