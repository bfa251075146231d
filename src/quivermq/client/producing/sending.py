"""A producer without a socket, a thread or a clock of its own: what it takes, and how that is sent.

A shell guards it, waits where there is no room, and runs its flows.
"""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from quivermq.client.core.call import Flow
from quivermq.client.core.publishing import Publishing
from quivermq.client.core.topics import TopicCalls
from quivermq.client.producing.batch import ProducerBatch
from quivermq.client.producing.gathering import Gathering
from quivermq.client.producing.identity import Identity
from quivermq.client.producing.options import ProducerOptions
from quivermq.errors import Closing, Conflict, InvalidRequest, MessageTooLarge, Overloaded, QuiverError
from quivermq.frame import EntryFields, compression_of
from quivermq.log.entries import checked_entry
from quivermq.model.lanes import Priority, lane_number
from quivermq.model.messages import Put
from quivermq.model.names import check_topic_name
from quivermq.model.stats import TopicInfo
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.incoming import message_bytes
from quivermq.topic.routing import Router

logger = logging.getLogger(__name__)

# What a message takes besides its bytes, about.
OVERHEAD_BYTES = 8
_LIMITS = StorageSettings()
_BYTES_MAX = 2**31 - 1


class Sending:
    """Everything that is to be sent to one topic. `guard` is what the shell calls it under."""

    def __init__(self, topic: str, options: ProducerOptions, guard: AbstractContextManager[Any]) -> None:
        check_topic_name(topic)
        self.topic = topic
        self.options = options
        self.calls = TopicCalls(options.retry)
        self.gathering = Gathering(options.batch_limits, self.calls.clock)
        self.identity = Identity()
        self.sending: ProducerBatch | None = None
        self.is_closed = False
        self._guard = guard
        self._publishing = Publishing(self.calls, topic)
        self._failure: QuiverError | None = None
        self._failed_messages = 0
        self._router = Router(1)
        self._look(None)

    def begin(self) -> Flow[None]:
        """Find out what the topic is like."""
        self._look((yield from self.calls.remembered(self.topic)))

    def _look(self, info: TopicInfo | None) -> None:
        """Note what the topic is like. One that is new will have one partition."""
        self._partitions = 1 if info is None else info.partitions
        self._ttl_ms = None if info is None else info.settings.ttl_ms
        self.message_bytes_max = (
            _LIMITS.message_bytes_max if info is None else info.settings.message_bytes_max
        )
        self._limits = _limits(self.message_bytes_max)
        settings = TopicSettings() if info is None else info.settings
        self._frame_codec = compression_of(
            self.options.compression or settings.codec,
            # A level is meant for one codec.
            settings.compression_level if self.options.compression in (None, settings.codec) else None,
            settings.compression_bytes_min,
        )
        if self._router.partitions != self._partitions:
            self._router = Router(self._partitions)

    # In.

    def checked_value(self, value: object) -> bytes:
        """The value as bytes of its own. Raises InvalidRequest and MessageTooLarge."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise InvalidRequest(f"value is bytes, not a {type(value).__name__}")
        copied = bytes(value)
        if len(copied) > self.message_bytes_max:
            raise MessageTooLarge(
                "the message",
                size_bytes=len(copied),
                limit_bytes=self.message_bytes_max,
                setting="message_bytes_max",
            )
        return copied

    def add_plain(self, value: bytes) -> tuple[ProducerBatch, int, bool]:
        """Take a value: its batch, its place there, and whether there is something new to do."""
        gathering, limits = self.gathering, self.gathering.limits
        batch = gathering.plain
        is_new = batch is None
        if batch is None:
            batch = gathering.open_plain(self._partitions)
        size = len(value) + OVERHEAD_BYTES
        index = len(batch.values)
        batch.values.append(value)
        batch.bytes = total = batch.bytes + size
        gathering.buffered_bytes += size
        if (index + 1 >= limits.messages or total >= limits.bytes) and gathering.grown(batch):
            is_new = True
        return batch, index, is_new

    def checked_rich(
        self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None, priority: Priority
    ) -> "Rich":
        """A message that is more than a value. Raises InvalidRequest and MessageTooLarge."""
        lane_number(priority)
        entry, rest = checked_entry(value, key, headers or None, None, None, None, self._limits)
        key, headers = (None, None) if rest is None else (rest.key, rest.headers)
        return Rich(entry, key, headers, priority, message_bytes(entry, key, headers) + OVERHEAD_BYTES)

    def add_rich(self, message: "Rich", partition: int | None) -> tuple[ProducerBatch, int, bool]:
        """As `add_plain`. Raises InvalidRequest for a partition that there is not."""
        gathering, limits = self.gathering, self.gathering.limits
        number = self._router.partition_of(message.key) if partition is None else partition
        if type(number) is not int or not 0 <= number < self._partitions:
            raise InvalidRequest(f"there is no partition {number!r}: the topic has {self._partitions}")
        batch = gathering.open_batch((number, message.priority))
        index = len(batch.values)
        batch.values.append(message.value)
        if message.key is not None or message.headers:
            batch.rests[index] = EntryFields(message.key, message.headers)
        batch.bytes += message.size
        gathering.buffered_bytes += message.size
        is_large = index + 1 >= limits.messages or batch.bytes >= limits.bytes
        return batch, index, not index or (is_large and gathering.grown(batch))

    def has_room(self, size: int) -> bool:
        """Whether so many bytes may come. A buffer that is empty takes anything."""
        buffered = self.gathering.buffered_bytes
        return not buffered or buffered + size <= self.options.buffer_bytes

    def check_room(self, size: int) -> bool:
        """Whether there is room; if not, everything is sent at once. Raises Closing and Overloaded."""
        self.check_open()
        if self.has_room(size):
            return True
        if self.options.when_full == "raise":
            raise Overloaded(self.topic, setting="buffer_bytes", limit=self.options.buffer_bytes)
        self.gathering.hurry()
        return False

    def check_open(self) -> None:
        """Raise Closing once the producer was closed."""
        if self.is_closed:
            raise Closing(f"the producer for {self.topic} was closed: make another one")

    # Out.

    def unfinished(self) -> list[ProducerBatch]:
        """Everything that is not stored yet, which is sent at once."""
        waiting = self.gathering.hurry()
        return waiting if self.sending is None else [*waiting, self.sending]

    def take_failure(self) -> tuple[QuiverError | None, int]:
        """What went wrong first since the last time, and how many messages were not stored."""
        found = self._failure, self._failed_messages
        self._failure, self._failed_messages = None, 0
        return found

    def take_due(self) -> tuple[ProducerBatch | None, float | None]:
        """The next batch to send, or how long to wait until one is due; neither while there is nothing."""
        if self.is_closed:
            self.gathering.hurry()
        self.sending = self.gathering.take_due()
        return self.sending, None if self.sending is not None else self.gathering.wait_s()

    def deliver(self, batch: ProducerBatch) -> Flow[None]:
        """Send a batch until it is stored or cannot be, and note which."""
        put, failure = None, None
        try:
            put = yield from self._delivered(batch)
        except QuiverError as error:
            failure = error
        except Exception as problem:
            # A bug: whoever waits for these messages must still hear of it.
            logger.exception("could not send a batch for %s", self.topic)
            failure = QuiverError(f"the batch could not be sent: {problem!r}")
        self._settle(batch, put, failure)

    def give_up(self, batch: ProducerBatch, error: QuiverError) -> None:
        """Nobody can send it any more."""
        self._settle(batch, None, error)

    def _delivered(self, batch: ProducerBatch) -> Flow[Put]:
        """The order of a lane holds, because no other batch is under way."""
        try:
            put = yield from self._put(batch)
        except Conflict as error:
            if type(error) is not Conflict:
                raise
            # The broker does not know what came before: its topic is another one, or lost its end.
            logger.warning("begin anew as a producer for %s: %s", self.topic, error)
            self.identity.renew()
            put = yield from self._put(batch)
        self.identity.advance(batch.lane, len(batch.values))
        return put

    def _put(self, batch: ProducerBatch) -> Flow[Put]:
        info = yield from self.calls.remembered(self.topic)
        if info is not None:
            with self._guard:
                self._look(info)
        partition, priority = batch.lane
        frame = batch.encoded(self.identity.next_of(batch.lane), self._frame_codec, self._ttl_ms)
        durability = self.options.durability
        flow = self._publishing.put_frame(frame, partition, priority, durability)
        return (yield from flow)

    def _settle(self, batch: ProducerBatch, put: Put | None, error: QuiverError | None) -> None:
        if error is not None:
            self.identity.renew()
        with self._guard:
            batch.put, batch.error = put, error
            self.sending = None
            self.gathering.buffered_bytes -= batch.bytes
            if error is not None and self.options.acks == "leader":
                self._failure = self._failure or error
                self._failed_messages += len(batch.values)
        if error is not None and self.options.acks == "none":
            logger.warning("%d messages for %s are lost: %s", len(batch.values), self.topic, error)


def _limits(message_bytes_max: int) -> StorageSettings:
    """What a message is checked against. How large frames may be, the broker knows: here they take any."""
    frame_bytes = min(max(_LIMITS.frame_bytes_max, 2 * message_bytes_max), _BYTES_MAX)
    return replace(
        _LIMITS,
        message_bytes_max=message_bytes_max,
        frame_bytes_max=frame_bytes,
        frame_raw_bytes_max=max(_LIMITS.frame_raw_bytes_max, frame_bytes),
    )


class Rich:
    """A message that was checked, with a key, headers, or a priority."""

    __slots__ = ("headers", "key", "priority", "size", "value")

    def __init__(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        priority: Priority,
        size: int,
    ) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.priority = priority
        self.size = size
