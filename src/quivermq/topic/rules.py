"""What a topic lets in, also before it exists."""

from collections.abc import Mapping, Sequence

from quivermq.clock import SteadyClock
from quivermq.disk import Buffer
from quivermq.errors import InvalidRequest
from quivermq.frame import Frame, Header
from quivermq.log.entries import check_foreign_frame, checked_entry, parse_only
from quivermq.model.checks import Moment, Period, check_partition, moment_us
from quivermq.model.lanes import NORMAL, lane_number
from quivermq.model.messages import Message
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.incoming import (
    Batch,
    CheckedMessage,
    check_messages,
    check_sizes,
    checked_id,
    due_us,
    expiry_us,
    window_us_of,
)
from quivermq.topic.transfer import TRANSFER_EPOCH


class TopicRules:
    """The settings of a topic, and the messages and frames that they let in."""

    def __init__(self, settings: TopicSettings, limits: StorageSettings, clock: SteadyClock) -> None:
        self.settings = settings
        self.limits = limits
        self._clock = clock
        # Asked for every message.
        self._lets_expire = settings.ttl_ms is not None
        self._bytes_max = limits.message_bytes_max

    def check(
        self,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        priority: str = "normal",
        ttl: Period | None = None,
        delay: Period | None = None,
        deliver_at: Moment | None = None,
        dedup_id: str | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        dedup_window: Period | None = None,
    ) -> CheckedMessage:
        """One message as it will be stored. Raises InvalidRequest."""
        settings = self.settings
        lane = NORMAL if priority == "normal" else lane_number(priority)
        rest = due = expires_at = window_us = None
        if delay is not None or deliver_at is not None:
            due = due_us(delay, deliver_at, self._clock, self._clock.now_us())
        if ttl is not None or self._lets_expire:
            expires_at = expiry_us(ttl, settings, self._clock.now_us() if due is None else due)
        if dedup_id is not None or dedup_window is not None:
            window_us = window_us_of(dedup_window, checked_id(dedup_id))
        # A message that is just a value is spared the checks of what it does not have.
        if (
            key is not None
            or headers
            or timestamp is not None
            or expires_at is not None
            or dedup_id is not None
            or type(value) is not bytes
            or len(value) > self._bytes_max
        ):
            stamp = None if timestamp is None else moment_us("timestamp", timestamp)
            value, rest = checked_entry(
                value, key, headers or None, stamp, expires_at, dedup_id, self.limits
            )
        if partition is not None:
            check_partition(partition, settings)
        return value, rest, lane, partition, due, window_us, settings

    def check_many(self, messages: Sequence[bytes | Message]) -> Batch:
        """Messages as they will be stored. Raises InvalidRequest."""
        return check_messages(messages, self.settings, self.limits, self._clock)

    def check_again(self, batch: Batch) -> None:
        """Raise InvalidRequest for what other settings let in, and these do not.

        Between the check and the put, the topic may have been altered, or deleted and made anew.
        """
        if batch.settings != self.settings:
            for partition in set(batch.partitions or ()):
                check_partition(partition, self.settings)
            check_sizes(batch, self.limits)

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

    def check_routed(self, partitions: int) -> None:
        """Raise InvalidRequest when keys lead elsewhere than they did with so many partitions."""
        if partitions != self.settings.partitions:
            raise InvalidRequest(
                f"the frame was routed for {partitions} partitions, and the topic has"
                f" {self.settings.partitions}: ask for the topic again, and route it anew"
            )

    def check_producer(self, header: Header, partition: int | None) -> None:
        """Raise InvalidRequest when a producer does not say what it has to."""
        check_partition(partition, self.settings)
        if header.producer_id and partition is None:
            raise InvalidRequest("a producer with an id says which partition its frames are for")
        if header.producer_epoch == TRANSFER_EPOCH:
            raise InvalidRequest(f"a producer's epoch is below {TRANSFER_EPOCH}: start it with a new id")
