"""What `quivermq.aio` returns: a queue whose methods are awaited, over the wire or embedded."""

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakSet

from quivermq.client.asynchronous.consumer import AsyncConsumer
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.giving_back import release_quietly
from quivermq.client.asynchronous.pool import AsyncPool
from quivermq.client.asynchronous.producer import AsyncProducer
from quivermq.client.asynchronous.queue import AsyncQueue
from quivermq.client.asynchronous.renewal import AsyncRenewer
from quivermq.client.asynchronous.source import EmbeddedSource, RemoteSource, Source
from quivermq.client.asynchronous.streaming import AsyncStream
from quivermq.client.blocking.connection import default_ssl_context
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
from quivermq.client.core.topics import TopicCalls
from quivermq.client.producing.options import MIB, Acks, ProducerOptions, WhenFull
from quivermq.client.producing.options import RETRIES as PRODUCER_RETRIES
from quivermq.clock import Clock
from quivermq.disk import Buffer
from quivermq.engine import open_engine
from quivermq.errors import InvalidRequest
from quivermq.log import Replaced, Report
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.checks import Period
from quivermq.model.messages import ProducerState, Put
from quivermq.model.stats import Compacted, EngineStats, TopicInfo
from quivermq.settings import ClientSettings, CodecName, Durability, Settings

if TYPE_CHECKING:
    from ssl import SSLContext


async def connect_async(
    url: str,
    *,
    key: str | None = None,
    timeout: Period | None = None,
    ssl_context: "SSLContext | None" = None,
    retries: int | None = None,
    backoff: Period | None = None,
    backoff_max: Period | None = None,
    settings: ClientSettings | None = None,
) -> "AsyncConnection":
    """As `quivermq.connect`, with methods that are awaited. It belongs to the event loop that runs."""
    address = Address.parse(url)
    settings = client_settings(settings)
    timeout_s, retry = patience_of(settings, timeout, retries, backoff, backoff_max)
    if address.is_secure and ssl_context is None:
        ssl_context = default_ssl_context()
    pool = AsyncPool(address, common_headers(address, key), timeout_s, ssl_context)
    return AsyncConnection(RemoteSource(str(address), pool, TopicCalls(retry)), settings)


async def open_async(
    path: str | os.PathLike[str],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    clock: Clock | None = None,
) -> "AsyncConnection":
    """As `quivermq.open`, with methods that are awaited: each runs in a thread. `clock` is for tests."""
    engine = await asyncio.to_thread(partial(open_engine, path, settings, clock=clock))
    return AsyncConnection(EmbeddedSource(engine))


class AsyncConnection:
    """A queue for the tasks of one event loop. Close it, or use it in an `async with` statement."""

    def __init__(self, source: Source, settings: ClientSettings | None = None) -> None:
        self.source = source
        self._settings = settings or ClientSettings()
        self.renewer = AsyncRenewer(source.clock)
        self.streams: WeakSet[AsyncStream] = WeakSet()
        self._finishing: set[asyncio.Task[None]] = set()
        self._producers: WeakSet[AsyncProducer] = WeakSet()
        self._consumers: WeakSet[AsyncConsumer] = WeakSet()

    # Topics.

    async def create_topic(self, name: str, *, exist_ok: bool = False, **settings: Any) -> None:
        """Create a topic. Raises TopicExists, InvalidName, InvalidSettings.

        With `exist_ok`, one that is there already stays as it is, whatever the settings say.
        """
        await self.source.call("create_topic", name, exist_ok=exist_ok, **settings)

    async def alter_topic(self, name: str, **settings: Any) -> None:
        """Change settings of a topic while it is in use. Raises TopicNotFound, InvalidSettings."""
        await self.source.call("alter_topic", name, **settings)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, its messages and what its groups know. Its dead letters stay."""
        await self.source.call("delete_topic", name)

    async def topics(self) -> list[str]:
        """The names of all topics."""
        return cast(list[str], await self.source.call("topics"))

    async def topic(self, name: str) -> TopicInfo:
        """One topic. Raises TopicNotFound."""
        return cast(TopicInfo, await self.source.call("topic", name))

    async def groups(self, topic: str) -> list[str]:
        """The groups of a topic. Raises TopicNotFound."""
        return cast(list[str], await self.source.call("groups", topic))

    async def delete_group(self, topic: str, group: str) -> bool:
        """Forget what a group knows of a topic. False when there is no such group."""
        return cast(bool, await self.source.call("delete_group", topic, group))

    def queue(self, topic: str, group: str = "default") -> AsyncQueue:
        """A topic, or all topics of a pattern, as one group sees it. Nothing is created yet."""
        return AsyncQueue(self, topic, group)

    async def begin_producer(self, topic: str, producer_id: int) -> ProducerState:
        """Begin anew as the producer of that id: its frames of earlier epochs are refused from now on.

        Tells the epoch to send with, and for each lane where the first frame lies that this producer ever
        sent, as far back as producers are remembered. The topic is created when it is new.
        """
        return cast(ProducerState, await self.source.call("begin_producer", topic, producer_id))

    async def adopt(
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
        arguments = {"partition": partition, "priority": priority, "expected": expected}
        return cast(bool, await self.source.call("adopt", topic, group, progress, **arguments))

    async def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        """Remember deduplication ids that another queue knew, each until it would have expired there.

        None for longer than the topic's `dedup_window_ms`. Returns how many still hold. Raises
        TopicNotFound, InvalidRequest, OffsetOutOfRange.
        """
        return cast(int, await self.source.call("adopt_ids", topic, adopted))

    async def adopt_dead_letters(
        self, topic: str, frame: Buffer, *, partition: int = 0, priority: str = "normal"
    ) -> Put:
        """Append a frame of messages that another queue gave up to the dead letters of a topic.

        What their `quiver-dlq-` headers tell is believed, but for the topic. They are on stable storage on
        return; a producer may repeat a frame. Raises InvalidRequest, InvalidFrame.
        """
        arguments = {"partition": partition, "priority": priority}
        return cast(Put, await self.source.call("adopt_dead_letters", topic, frame, **arguments))

    async def replace_segment(
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
        arguments = {"expected": expected, "priority": priority}
        done = await self.source.call("replace_segment", topic, partition, base_offset, frames, **arguments)
        return cast(Replaced, done)

    async def producer(
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
    ) -> AsyncProducer:
        """Something that sends single messages in batches. As `Connection.producer`; only with a broker."""
        options = ProducerOptions(
            linger_ms, batch_messages, batch_bytes, buffer_bytes, when_full, acks, retries, durability,
            compression,
        )  # fmt: skip
        producer = await AsyncProducer(topic, self._broker("producer"), options).begin()
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
    ) -> AsyncConsumer:
        """A member of a group in stream mode. As `Connection.consumer`; only with a broker.

        The callbacks may be coroutine functions.
        """
        options = ConsumerOptions(
            names_of(topics), group, strategy, auto_commit_ms, reset, on_assigned, on_revoked, max_poll,
            *session_of(self._settings, session_timeout_ms, heartbeat_ms),
        )  # fmt: skip
        source = self._broker("consumer")
        consumer = AsyncConsumer(source, source.calls, options)
        self._consumers.add(consumer)
        return consumer

    def _broker(self, what: str) -> RemoteSource:
        if not isinstance(self.source, RemoteSource):
            raise InvalidRequest(f"a {what} needs a broker: use aio.connect")
        self.source.check_open()
        return self.source

    # The whole.

    async def sync(self) -> None:
        """Return once everything that was put so far is on stable storage, whatever the durability."""
        await self.source.call("sync")

    async def stats(self) -> EngineStats:
        """What there is, and how far every group has come."""
        return cast(EngineStats, await self.source.call("stats"))

    async def compact(self, *, archived: bool = False) -> Compacted:
        """Remove now what the settings no longer keep, and shorten the journals.

        With `archived`, segments go as well that are in the archive and that all groups have finished with.
        """
        return cast(Compacted, await self.source.call("compact", archived=archived))

    async def use_archive(self, directory: str | os.PathLike[str] | None) -> None:
        """Name the archive of the queue, or None: what `read` goes on with before the log begins.

        Nothing leaves a topic that is archived before it is archived, unless that has `retention_force`. A
        relative path begins at the data directory. Raises NotFound when there is no archive.
        """
        await self.source.call("use_archive", directory)

    async def verify(self) -> Report:
        """Check every byte of every log, while the queue is in use."""
        return cast(Report, await self.source.call("verify"))

    async def close(self) -> None:
        """Let go of the broker, or close the embedded queue. Closing twice is allowed.

        Consumers commit and leave their groups first; producers send what they have, and raise here what
        they cannot. What `process` and `stream` are at is released; other leases stay as they are.
        """
        await self._close(is_finished=True)

    async def give_back(self, queue: AsyncQueue, messages: Iterable[AsyncDelivery]) -> None:
        """Release what was not settled, and never fail: what cannot be given back has a lease that ends."""
        held = [message for message in messages if not message.is_settled]
        if held:
            await self.finish(release_quietly(queue, held))

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what has to be done also when whoever waits for it is cancelled, even a second time."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # A generator that is closed when there is no event loop any more: nothing can be sent.
            work.close()
            return
        task = loop.create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        await asyncio.shield(task)

    async def _finished(self) -> None:
        if self._finishing:
            await asyncio.wait(list(self._finishing))

    async def _close(self, *, is_finished: bool) -> None:
        async with AsyncExitStack() as stack:
            # From the last to the first, each of them whatever the others raise.
            stack.push_async_callback(self.source.close)
            stack.push_async_callback(self.renewer.close)
            stack.push_async_callback(self._finished)
            stack.push_async_callback(self.renewer.give_back)
            for stream in list(self.streams):
                stack.push_async_callback(stream.close)
            for producer in list(self._producers):
                stack.push_async_callback(producer.close)
            for consumer in list(self._consumers):
                stack.push_async_callback(consumer.end, is_finished=is_finished)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: object, *_: object) -> None:
        # A block that raised did not finish what its consumers last gave it: that is to be delivered again.
        await self._close(is_finished=error is None)

    def __repr__(self) -> str:
        return f"<AsyncConnection {self.source.name}>"
