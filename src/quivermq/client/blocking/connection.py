"""What `quivermq.connect` returns: the embedded queue's methods, over the wire."""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from quivermq.client.blocking.pool import Pool
from quivermq.client.blocking.queue import RemoteQueue
from quivermq.client.blocking.renewal import Renewer
from quivermq.client.blocking.shell import Shell
from quivermq.client.blocking.streaming import Stream
from quivermq.client.blocking.taking import Takings
from quivermq.client.consuming.consumer import RemoteConsumer
from quivermq.client.consuming.options import (
    Callback,
    ConsumerOptions,
    Reset,
    Strategy,
    names_of,
    session_of,
)
from quivermq.client.core.address import Address, common_headers
from quivermq.client.core.patience import client_settings, patience_of
from quivermq.client.core.retry import Retry
from quivermq.client.core.topics import TopicCalls
from quivermq.client.producing.options import MIB, Acks, ProducerOptions, WhenFull
from quivermq.client.producing.options import RETRIES as PRODUCER_RETRIES
from quivermq.client.producing.producer import RemoteProducer
from quivermq.disk import Buffer
from quivermq.log import Replaced, Report
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.checks import Period
from quivermq.model.messages import ProducerState, Put
from quivermq.model.stats import Compacted, EngineStats, TopicInfo
from quivermq.reentry import is_inside, soon
from quivermq.settings import ClientSettings, CodecName, Durability

if TYPE_CHECKING:
    from ssl import SSLContext


def connect(
    url: str,
    *,
    key: str | None = None,
    timeout: Period | None = None,
    ssl_context: "SSLContext | None" = None,
    retries: int | None = None,
    backoff: Period | None = None,
    backoff_max: Period | None = None,
    settings: ClientSettings | None = None,
) -> "Connection":
    """A queue that a broker serves, with the methods of one that `quivermq.open` opens.

    Nothing is sent before the first call. `timeout` is how many seconds the broker may be silent; a call
    that is safe to repeat is made again up to `retries` times, with waits between that grow from `backoff`
    to `backoff_max` seconds. What is not given is as in `settings`, by default those of the environment,
    such as QUIVER_CLIENT__RETRIES. `https` is checked against the certificates of the system, unless there
    is an `ssl_context`. Raises InvalidRequest, InvalidSettings.
    """
    address = Address.parse(url)
    settings = client_settings(settings)
    timeout_s, retry = patience_of(settings, timeout, retries, backoff, backoff_max)
    if address.is_secure and ssl_context is None:
        ssl_context = default_ssl_context()
    pool = Pool(address, common_headers(address, key), timeout_s, ssl_context)
    return Connection(str(address), pool, retry, settings)


def default_ssl_context() -> "SSLContext":
    """What a secure connection is checked with. Only then is the module loaded."""
    import ssl

    return ssl.create_default_context()


class Connection:
    """A broker as this process sees it. Thread-safe; close it, or use it in a `with` statement."""

    def __init__(self, url: str, pool: Pool, retry: Retry, settings: ClientSettings) -> None:
        self.url = url
        self._settings = settings
        self.calls = TopicCalls(retry)
        self.shell = Shell(pool)
        self.renewer = Renewer(self.calls.clock)
        self.streams: WeakSet[Stream] = WeakSet()
        self.takings = Takings(self.shell)
        self._producers: WeakSet[RemoteProducer] = WeakSet()
        self._consumers: WeakSet[RemoteConsumer] = WeakSet()

    # Topics.

    def create_topic(self, name: str, *, exist_ok: bool = False, **settings: Any) -> None:
        """Create a topic. Raises TopicExists, InvalidName, InvalidSettings.

        With `exist_ok`, one that is there already stays as it is, whatever the settings say.
        """
        self.shell.run(self.calls.create_topic(name, exist_ok=exist_ok, **settings))

    def alter_topic(self, name: str, **settings: Any) -> None:
        """Change settings of a topic while it is in use. Raises TopicNotFound, InvalidSettings."""
        self.shell.run(self.calls.alter_topic(name, **settings))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its messages and what its groups know. Its dead letters stay."""
        self.shell.run(self.calls.delete_topic(name))

    def topics(self) -> list[str]:
        """The names of all topics."""
        return self.shell.run(self.calls.topics())

    def topic(self, name: str) -> TopicInfo:
        """One topic. Raises TopicNotFound."""
        return self.shell.run(self.calls.topic(name))

    def groups(self, topic: str) -> list[str]:
        """The groups of a topic. Raises TopicNotFound."""
        return self.shell.run(self.calls.groups(topic))

    def delete_group(self, topic: str, group: str) -> bool:
        """Forget what a group knows of a topic. False when there is no such group."""
        return self.shell.run(self.calls.delete_group(topic, group))

    def queue(self, topic: str, group: str = "default") -> RemoteQueue:
        """A topic, or all topics of a pattern, as one group sees it. Nothing is created yet."""
        self.shell.check_open()
        return RemoteQueue(self, topic, group)

    def begin_producer(self, topic: str, producer_id: int) -> ProducerState:
        """Begin anew as the producer of that id: its frames of earlier epochs are refused from now on.

        Tells the epoch to send with, and for each lane where the first frame lies that this producer ever
        sent, as far back as producers are remembered. The topic is created when it is new.
        """
        return self.shell.run(self.calls.begin_producer(topic, producer_id))

    def adopt(
        self,
        topic: str,
        group: str,
        progress: Progress,
        *,
        partition: int = 0,
        priority: str = "normal",
        expected: Progress | None = None,
    ) -> bool:
        """Let a group go on where another queue was, from which the messages of a lane were imported.

        With a position, only where the group has never been, or still is exactly where `expected` says it
        was put before; False tells that it is elsewhere. Without one, only attempts are taken over, of
        messages that the group has not had. Raises TopicNotFound, InvalidRequest, OffsetOutOfRange.
        """
        flow = self.calls.adopt(
            topic, group, progress, partition=partition, priority=priority, expected=expected
        )
        return self.shell.run(flow)

    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        """Remember deduplication ids that another queue knew, each until it would have expired there.

        None for longer than the topic's `dedup_window_ms`. Returns how many still hold. Raises
        TopicNotFound, InvalidRequest, OffsetOutOfRange.
        """
        return self.shell.run(self.calls.adopt_ids(topic, adopted))

    def adopt_dead_letters(
        self, topic: str, frame: Buffer, *, partition: int = 0, priority: str = "normal"
    ) -> Put:
        """Append a frame of messages that another queue gave up to the dead letters of a topic.

        What their `quiver-dlq-` headers tell is believed, but for the topic. They are on stable storage on
        return; a producer may repeat a frame. Raises InvalidRequest, InvalidFrame.
        """
        flow = self.calls.adopt_dead_letters(topic, frame, partition=partition, priority=priority)
        return self.shell.run(flow)

    def replace_segment(
        self,
        topic: str,
        partition: int,
        base_offset: int,
        frames: Buffer,
        *,
        expected: str,
        priority: str = "normal",
    ) -> Replaced:
        """Put frames in the place of those that take the same offsets in a sealed segment: for compaction.

        The topic has cleanup=compact. `base_offset` is the segment's, `expected` the stamp of the frames
        that are to go. Every offset stays, and what producers may repeat. Raises Conflict when the
        frames were changed since they were read, NotFound when the segment is gone, InvalidRequest.
        """
        flow = self.calls.replace_segment(
            topic, partition, base_offset, frames, expected=expected, priority=priority
        )
        return self.shell.run(flow)

    def producer(
        self,
        topic: str,
        *,
        linger_ms: int = 5,
        batch_messages: int = 1000,
        batch_bytes: int = MIB,
        buffer_bytes: int = 64 * MIB,
        when_full: WhenFull = "block",
        acks: Acks = "leader",
        retries: int = PRODUCER_RETRIES,
        durability: Durability | None = None,
        compression: CodecName | None = None,
    ) -> RemoteProducer:
        """Something that sends single messages in batches, from a thread in the background.

        A batch goes when it has `batch_messages` or `batch_bytes`, or after `linger_ms`. Closing the
        connection closes it first. Raises InvalidRequest.
        """
        options = ProducerOptions(
            linger_ms, batch_messages, batch_bytes, buffer_bytes, when_full, acks, retries, durability,
            compression,
        )  # fmt: skip
        producer = RemoteProducer(topic, self.shell, options)
        self._producers.add(producer)
        return producer

    def consumer(
        self,
        topics: str | Iterable[str],
        group: str,
        *,
        strategy: Strategy = "cooperative",
        auto_commit_ms: int | None = 5000,
        reset: Reset = "earliest",
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        max_poll: int = 500,
        session_timeout_ms: int | None = None,
        heartbeat_ms: int | None = None,
    ) -> RemoteConsumer:
        """A member of a group in stream mode, which gets partitions of the topics to itself.

        Topics may be patterns. Where the group has never been, `reset` says where to begin. Every
        `heartbeat_ms` it says that it lives, and has left once the broker hears nothing for
        `session_timeout_ms`; by default both are as in the settings of the connection. Closing that closes
        it first. Raises InvalidRequest.
        """
        options = ConsumerOptions(
            names_of(topics), group, strategy, auto_commit_ms, reset, on_assigned, on_revoked, max_poll,
            *session_of(self._settings, session_timeout_ms, heartbeat_ms),
        )  # fmt: skip
        consumer = RemoteConsumer(self.shell, self.calls, options)
        self._consumers.add(consumer)
        return consumer

    # The whole.

    def sync(self) -> None:
        """Return once everything that was put so far is on stable storage, whatever the durability."""
        self.shell.run(self.calls.sync())

    def stats(self) -> EngineStats:
        """What there is, and how far every group has come."""
        return self.shell.run(self.calls.stats())

    def compact(self, *, archived: bool = False) -> Compacted:
        """Let the broker remove now what the settings no longer keep, and shorten its journals.

        With `archived`, segments go as well that are in the archive and that all groups have finished with.
        """
        return self.shell.run(self.calls.compact(archived=archived))

    def use_archive(self, directory: str | os.PathLike[str] | None) -> None:
        """Name the archive of the queue, a directory that the broker can read, or None.

        Nothing leaves a topic that is archived before it is archived, unless that has `retention_force`. A
        relative path begins at the broker's data directory. Raises NotFound when there is no archive.
        """
        self.shell.run(self.calls.use_archive(directory))

    def verify(self) -> Report:
        """Let the broker check every byte of every log, while it is in use."""
        return self.shell.run(self.calls.verify())

    def close(self) -> None:
        """Let go of the broker. Closing twice is allowed; what waits in another thread raises Closing.

        Consumers commit and leave their groups first; producers send what they have, and raise here what
        they cannot. What `process` and `stream` are at is released; other leases stay as they are, as they
        do when an embedded queue is closed. In a signal handler that has interrupted a call of this thread,
        it returns at once: waiting for messages ends, other calls come to their end, and then the
        connection is closed.
        """
        self._close(is_finished=True)

    def _close(self, *, is_finished: bool) -> None:
        if is_inside():
            self.shell.interrupt()
            soon(lambda: self._close(is_finished=is_finished))
            return
        self.shell.resume()
        with ExitStack() as stack:
            # From the last to the first, each of them whatever the others raise.
            stack.callback(self.renewer.close)
            stack.callback(self.shell.close)
            stack.callback(self.takings.give_back)
            stack.callback(self.renewer.give_back)
            for stream in list(self.streams):
                stack.callback(stream.close)
            for producer in list(self._producers):
                stack.callback(producer.close)
            for consumer in list(self._consumers):
                stack.callback(consumer.end, is_finished=is_finished)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        # A block that raised did not finish what its consumers last gave it: that is to be delivered again.
        self._close(is_finished=error is None)

    def __repr__(self) -> str:
        return f"<Connection {self.url}>"
