"""What `Connection.producer` returns: `send` is cheap, and one thread in the background does the rest."""

import logging
import threading
from collections.abc import Mapping
from typing import Literal, Self

from quivermq.client.blocking.shell import Shell
from quivermq.client.core.publishing import Publishing
from quivermq.client.core.topics import TopicCalls
from quivermq.client.producing.batch import Batch, Sent
from quivermq.client.producing.gathering import Gathering
from quivermq.client.producing.identity import Identity
from quivermq.engine import TopicInfo
from quivermq.errors import (
    Closing,
    Conflict,
    InvalidRequest,
    MessageTooLarge,
    Overloaded,
    QuiverError,
    Unavailable,
)
from quivermq.frame import codec_named
from quivermq.log.entries import checked_entry
from quivermq.settings import CodecName, Durability, StorageSettings
from quivermq.topic.incoming import message_bytes
from quivermq.topic.partition import lane_number
from quivermq.topic.put import Put
from quivermq.topic.routing import Router

logger = logging.getLogger(__name__)

WhenFull = Literal["block", "raise"]
Acks = Literal["leader", "none"]

# What a message takes besides its bytes, about.
_OVERHEAD_BYTES = 8
_LIMITS = StorageSettings()


class RemoteProducer:
    """Sends messages to one topic. Thread-safe; close it, or use it in a `with` statement.

    Messages of one partition and priority are stored in the order in which they were sent. A batch that has
    to be sent again, because the broker did not answer, is stored once.
    """

    def __init__(
        self,
        topic: str,
        shell: Shell,
        calls: TopicCalls,
        gathering: Gathering,
        *,
        buffer_bytes: int,
        when_full: WhenFull,
        acks: Acks,
        durability: Durability | None,
        codec: CodecName | None,
    ) -> None:
        self.topic = topic
        self._run = shell.run
        self._calls = calls
        self._publishing = Publishing(calls, topic)
        self._gathering = gathering
        self._buffer_bytes = buffer_bytes
        self._when_full = when_full
        self._acks = acks
        self._durability = durability
        self._codec = codec
        self._identity = Identity()
        lock = threading.Lock()
        # The same lock: work for the thread, and news for those who wait for it.
        self._lock = lock
        self._work = threading.Condition(lock)
        self._news = threading.Condition(lock)
        self._sending: Batch | None = None
        self._failure: QuiverError | None = None
        self._failed_messages = 0
        self._is_closed = False
        self._messages_due = gathering.bounds.messages
        self._bytes_due = gathering.bounds.bytes
        self._router = Router(1)
        self._look(shell.run(calls.remembered(topic)))
        self._thread = threading.Thread(target=self._work_off, name="quiver-producer", daemon=True)
        self._thread.start()

    def _look(self, info: TopicInfo | None) -> None:
        """Note what the topic is like. One that is new will have one partition."""
        self._partitions = 1 if info is None else info.partitions
        self._ttl_ms = None if info is None else info.settings.ttl_ms
        self._message_bytes_max = (
            _LIMITS.message_bytes_max if info is None else info.settings.message_bytes_max
        )
        default = "none" if info is None else info.settings.codec
        self._frame_codec = codec_named(self._codec or default)
        if self._router.partitions != self._partitions:
            self._router = Router(self._partitions)

    # In.

    def send(
        self,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        priority: str = "normal",
    ) -> Sent | None:
        """Send a message soon. Its `result()` says where it is; None when nobody waits for that.

        Raises InvalidRequest and MessageTooLarge at once, Overloaded when the buffer is full and
        `when_full` is "raise", and Closing.
        """
        if type(value) is not bytes or len(value) > self._message_bytes_max:
            value = self._checked(value)
        is_plain = key is None and headers is None and partition is None and priority == "normal"
        if not is_plain:
            return self._send_rich(value, key, headers, partition, priority)
        size = len(value) + _OVERHEAD_BYTES
        with self._lock:
            gathering = self._gathering
            if self._is_closed or gathering.buffered_bytes + size > self._buffer_bytes:
                self._make_room(size)
            batch = gathering.plain
            if batch is None:
                batch = gathering.open_plain(self._partitions)
                self._work.notify()
            values = batch.values
            index = len(values)
            values.append(value)
            batch.bytes = total = batch.bytes + size
            gathering.buffered_bytes += size
            if (index + 1 >= self._messages_due or total >= self._bytes_due) and gathering.grown(batch):
                self._work.notify()
        return Sent(batch, index, self._news) if self._acks == "leader" else None

    def _send_rich(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        partition: int | None,
        priority: str,
    ) -> Sent | None:
        lane_number(priority)
        entry, rest = checked_entry(value, key, headers or None, None, None, None, _LIMITS)
        assert rest is not None
        size = message_bytes(entry, rest[0], rest[1]) + _OVERHEAD_BYTES
        with self._lock:
            gathering = self._gathering
            if self._is_closed or gathering.buffered_bytes + size > self._buffer_bytes:
                self._make_room(size)
            number = self._router.partition_of(rest[0]) if partition is None else partition
            if type(number) is not int or not 0 <= number < self._partitions:
                raise InvalidRequest(f"there is no partition {number!r}: the topic has {self._partitions}")
            batch = gathering.open_batch((number, priority))
            index = len(batch.values)
            batch.values.append(entry)
            if rest[0] is not None or rest[1]:
                batch.rests[index] = (rest[0], rest[1])
            batch.bytes += size
            gathering.buffered_bytes += size
            is_large = index + 1 >= self._messages_due or batch.bytes >= self._bytes_due
            if not index or (is_large and gathering.grown(batch)):
                self._work.notify()
        return Sent(batch, index, self._news) if self._acks == "leader" else None

    def _checked(self, value: object) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise InvalidRequest(f"value is bytes, not a {type(value).__name__}")
        copied = bytes(value)
        if len(copied) > self._message_bytes_max:
            raise MessageTooLarge(
                "the message",
                size_bytes=len(copied),
                limit_bytes=self._message_bytes_max,
                setting="message_bytes_max",
            )
        return copied

    def _make_room(self, size: int) -> None:
        """Wait until the buffer takes so many bytes more. One that is empty takes anything."""
        self._check_open()
        if not self._gathering.buffered_bytes:
            return
        if self._when_full == "raise":
            raise Overloaded(self.topic, setting="buffer_bytes", limit=self._buffer_bytes)
        self._gathering.hurry()
        self._work.notify()
        self._news.wait_for(
            lambda: (
                self._is_closed
                or not self._gathering.buffered_bytes
                or self._gathering.buffered_bytes + size <= self._buffer_bytes
            )
        )
        self._check_open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closing(f"the producer for {self.topic} was closed: make another one")

    # Out.

    def flush(self, timeout: float | None = None) -> None:
        """Return once everything sent so far is stored.

        Raises the first error of what could not be stored since the last flush, and Unavailable when that
        takes longer than `timeout` seconds.
        """
        with self._lock:
            waiting = self._gathering.hurry()
            if self._sending is not None:
                waiting.append(self._sending)
            self._work.notify()
            is_done = self._news.wait_for(lambda: all(batch.is_done for batch in waiting), timeout)
            if not is_done:
                left = sum(len(batch.values) for batch in waiting if not batch.is_done)
                raise Unavailable(f"{left} messages are still on their way after {timeout} seconds")
            failure, self._failure = self._failure, None
            count, self._failed_messages = self._failed_messages, 0
        if failure is not None:
            logger.warning("%d messages for %s were not stored: %s", count, self.topic, failure)
            raise failure

    def close(self, timeout: float | None = None) -> None:
        """Send what is left and end. Raises as `flush`; nothing is dropped silently."""
        with self._lock:
            self._is_closed = True
            self._news.notify_all()
        try:
            self.flush(timeout)
        finally:
            with self._lock:
                self._work.notify()
            if timeout is None:
                self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteProducer for {self.topic}, {self._gathering.buffered_bytes} bytes buffered>"

    # The thread.

    def _work_off(self) -> None:
        while (batch := self._next()) is not None:
            put, error = None, None
            try:
                put = self._delivered(batch)
            except QuiverError as problem:
                error = problem
            except Exception as problem:
                # A bug: whoever waits for these messages must still hear of it.
                logger.exception("could not send a batch for %s", self.topic)
                error = QuiverError(f"the batch could not be sent: {problem!r}")
            self._settle(batch, put, error)

    def _next(self) -> Batch | None:
        with self._lock:
            while True:
                self._sending = self._gathering.take_due()
                if self._sending is not None:
                    return self._sending
                wait_s = self._gathering.wait_s()
                if self._is_closed and wait_s is None:
                    return None
                if self._is_closed:
                    self._gathering.hurry()
                else:
                    self._work.wait(wait_s)

    def _delivered(self, batch: Batch) -> Put:
        """Send a batch until it is stored. The order of a lane holds, because no other one is under way."""
        try:
            put = self._put(batch)
        except Conflict as error:
            if type(error) is not Conflict:
                raise
            # The broker does not know what came before: its topic is another one, or lost its end.
            logger.warning("begin anew as a producer for %s: %s", self.topic, error)
            self._identity.renew()
            put = self._put(batch)
        self._identity.advance(batch.lane, len(batch.values))
        return put

    def _put(self, batch: Batch) -> Put:
        info = self._run(self._calls.remembered(self.topic))
        if info is not None:
            with self._lock:
                self._look(info)
        partition, priority = batch.lane
        frame = batch.encoded(self._identity.next_of(batch.lane), self._frame_codec, self._ttl_ms)
        flow = self._publishing.put_frame(frame, partition, priority, self._durability, is_repeatable=True)
        return self._run(flow)

    def _settle(self, batch: Batch, put: Put | None, error: QuiverError | None) -> None:
        if error is not None:
            self._identity.renew()
        with self._lock:
            batch.put, batch.error = put, error
            self._sending = None
            self._gathering.buffered_bytes -= batch.bytes
            if error is not None and self._acks == "leader":
                self._failure = self._failure or error
                self._failed_messages += len(batch.values)
            self._news.notify_all()
        if error is not None and self._acks == "none":
            logger.warning("%d messages for %s are lost: %s", len(batch.values), self.topic, error)
