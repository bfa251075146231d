# Made by tools/asynchronous.py from queue/connection.py: change that, and run `make asynchronous`.

"""A whole queue: what `quivermq.open` and `quivermq.connect` return.

Written once, over a backend. The asynchronous one, `quivermq.aio.AsyncConnection`, is made from it by
`tools/asynchronous.py`.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Self, Unpack
from weakref import WeakSet

from quivermq.aio.backend import AsyncBackend
from quivermq.aio.finishing import close_all
from quivermq.aio.queue import AsyncQueue
from quivermq.aio.renewing import AsyncRenewer
from quivermq.aio.streaming import AsyncStreams
from quivermq.client.asynchronous.consumer import AsyncConsumer
from quivermq.client.asynchronous.producer import AsyncProducer
from quivermq.client.consuming.options import (
    Callback,
    ConsumerOptions,
    Reset,
    Strategy,
    names_of,
    session_of,
)
from quivermq.client.producing.options import MIB, Acks, ProducerOptions, WhenFull
from quivermq.client.producing.options import RETRIES as PRODUCER_RETRIES
from quivermq.disk import Buffer
from quivermq.errors import InvalidRequest
from quivermq.frame import OFFSET_MAX
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.backups import Backup
from quivermq.model.checks import check_number
from quivermq.model.lanes import Priority, check_priority
from quivermq.model.messages import PRODUCER_ID_MAX, ProducerState, Put
from quivermq.model.names import check_group_name, check_topic_name
from quivermq.model.operations import (
    AdoptDeadLetters,
    AdoptIds,
    AdoptProgress,
    AlterTopic,
    BeginProducer,
    Compact,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    DescribeTopic,
    GetStats,
    ListGroups,
    ListTopics,
    MakeBackup,
    ReplaceSegment,
    Sync,
    UseArchive,
    Verify,
)
from quivermq.model.stats import Compacted, EngineStats, Replaced, Report, TopicInfo
from quivermq.model.topic_settings import PARTITIONS_MAX, TopicOptions
from quivermq.settings import ClientSettings, CodecName, Durability


class AsyncConnection:
    """An open queue, or a broker as this process sees it. Close it, or use it in an `async with`."""

    def __init__(self, backend: AsyncBackend, settings: ClientSettings | None = None) -> None:
        self.backend = backend
        self._settings = settings or ClientSettings()
        self._renewer = AsyncRenewer(backend)
        self._streams: AsyncStreams = WeakSet()
        self._producers: WeakSet[AsyncProducer] = WeakSet()
        self._consumers: WeakSet[AsyncConsumer] = WeakSet()

    def __repr__(self) -> str:
        return f"<AsyncConnection {self.backend.name}>"

    # Topics.

    async def create_topic(
        self, name: str, *, exist_ok: bool = False, **settings: Unpack[TopicOptions]
    ) -> None:
        """Create a topic. Raises TopicExists, InvalidName, InvalidSettings.

        With `exist_ok`, one that is there already stays as it is, whatever the settings say.
        """
        check_topic_name(name)
        await self.backend.perform(CreateTopic(name, exist_ok, settings))

    async def alter_topic(self, name: str, **settings: Unpack[TopicOptions]) -> None:
        """Change settings of a topic while it is in use. Raises TopicNotFound, InvalidSettings."""
        check_topic_name(name)
        await self.backend.perform(AlterTopic(name, settings))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, its messages and what its groups know. Its dead letters stay."""
        check_topic_name(name)
        await self.backend.perform(DeleteTopic(name))

    async def topics(self) -> list[str]:
        """The names of all topics."""
        return await self.backend.perform(ListTopics())

    async def topic(self, name: str) -> TopicInfo:
        """One topic. Raises TopicNotFound."""
        check_topic_name(name)
        return await self.backend.perform(DescribeTopic(name))

    async def groups(self, topic: str) -> list[str]:
        """The groups of a topic. Raises TopicNotFound."""
        check_topic_name(topic)
        return await self.backend.perform(ListGroups(topic))

    async def delete_group(self, topic: str, group: str) -> bool:
        """Forget what a group knows of a topic. False when there is no such group."""
        check_group_name(group)
        check_topic_name(topic)
        return await self.backend.perform(DeleteGroup(topic, group))

    def queue(self, topic: str, group: str = "default") -> AsyncQueue:
        """A topic, or all topics of a pattern, as one group sees it. Nothing is created yet."""
        self.backend.check_open()
        return AsyncQueue(self.backend, self._renewer, self._streams, topic, group)

    async def begin_producer(self, topic: str, producer_id: int) -> ProducerState:
        """Begin anew as the producer of that id: its frames of earlier epochs are refused from now on.

        Tells the epoch to send with, and for each lane where the first frame lies that this producer ever
        sent, as far back as producers are remembered. The topic is created when it is new.
        """
        check_topic_name(topic)
        check_number("producer_id", producer_id, 1, PRODUCER_ID_MAX)
        return await self.backend.perform(BeginProducer(topic, producer_id))

    async def adopt(
        self,
        topic: str,
        group: str,
        progress: Progress,
        *,
        partition: int = 0,
        priority: Priority = "normal",
        expected: Progress | None = None,
    ) -> bool:
        """Let a group go on where another queue was, from which the messages of a lane were imported.

        With a position, only where the group has never been, or still is exactly where `expected` says it
        was put before; False tells that it is elsewhere. Without one, only attempts are taken over, of
        messages that the group has not had. Raises TopicNotFound, InvalidRequest, OffsetOutOfRange.
        """
        check_topic_name(topic)
        check_group_name(group)
        check_priority(priority)
        check_number("partition", partition, 0, PARTITIONS_MAX)
        return await self.backend.perform(
            AdoptProgress(topic, group, progress, partition, priority, expected)
        )

    async def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        """Remember deduplication ids that another queue knew, each until it would have expired there.

        None for longer than the topic's `dedup_window_ms`. Returns how many still hold. Raises
        TopicNotFound, InvalidRequest, OffsetOutOfRange.
        """
        check_topic_name(topic)
        return await self.backend.perform(AdoptIds(topic, adopted))

    async def adopt_dead_letters(
        self, topic: str, frame: Buffer, *, partition: int = 0, priority: Priority = "normal"
    ) -> Put:
        """Append a frame of messages that another queue gave up to the dead letters of a topic.

        What their `quiver-dlq-` headers say is believed, but for the topic. They are on stable storage on
        return; a producer may repeat a frame. Raises InvalidRequest, InvalidFrame.
        """
        check_topic_name(topic)
        check_priority(priority)
        check_number("partition", partition, 0, PARTITIONS_MAX)
        return await self.backend.perform(AdoptDeadLetters(topic, frame, partition, priority))

    async def replace_segment(
        self,
        topic: str,
        partition: int,
        base_offset: int,
        frames: Buffer,
        *,
        expected: str,
        priority: Priority = "normal",
    ) -> Replaced:
        """Put frames in the place of those that take the same offsets in a sealed segment: for compaction.

        The topic has cleanup=compact. `base_offset` is the segment's, `expected` the stamp of the frames
        that are to go. Every offset stays, and what producers may repeat. Raises Conflict when the
        frames were changed since they were read, NotFound when the segment is gone, InvalidRequest.
        """
        check_topic_name(topic)
        check_priority(priority)
        check_number("partition", partition, 0, PARTITIONS_MAX)
        check_number("base_offset", base_offset, 0, OFFSET_MAX)
        return await self.backend.perform(
            ReplaceSegment(topic, partition, base_offset, frames, expected, priority)
        )

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
        """Something that sends single messages in batches, from the background; only with a broker.

        A batch goes when it has `batch_messages` or `batch_bytes`, or after `linger_ms`. Closing the
        connection closes it first. Raises InvalidRequest.
        """
        options = ProducerOptions(
            linger_ms, batch_messages, batch_bytes, buffer_bytes, when_full, acks, retries, durability,
            compression,
        )  # fmt: skip
        producer = await self.backend.producer(topic, options)
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
        """A member of a group in stream mode, which gets partitions of the topics to itself.

        Only with a broker. Topics may be patterns. Where the group has never been, `reset` says where to
        begin. Every `heartbeat_ms` it says that it lives, and has left once the broker hears nothing for
        `session_timeout_ms`; by default both are as in the settings of the connection. Closing that closes
        it first. With asyncio, the callbacks may be coroutine functions. Raises InvalidRequest.
        """
        options = ConsumerOptions(
            names_of(topics), group, strategy, auto_commit_ms, reset, on_assigned, on_revoked, max_poll,
            *session_of(self._settings, session_timeout_ms, heartbeat_ms),
        )  # fmt: skip
        consumer = self.backend.consumer(options)
        self._consumers.add(consumer)
        return consumer

    # The whole.

    async def sync(self) -> None:
        """Return once everything that was put so far is on stable storage, whatever the durability.

        Raises StorageFailed and DiskRefused: then only opening the queue again tells what is there.
        """
        await self.backend.perform(Sync())

    async def stats(self) -> EngineStats:
        """What there is, how far every group has come, and what is wrong, the worst first."""
        return await self.backend.perform(GetStats())

    async def compact(self, *, archived: bool = False) -> Compacted:
        """Remove now what the settings no longer keep, and shorten the journals.

        With `archived`, segments go as well that are in the archive and that all groups have finished with.
        A topic that cannot be looked after raises its error when the others are done.
        """
        return await self.backend.perform(Compact(archived))

    async def use_archive(self, directory: str | os.PathLike[str] | None) -> None:
        """Name the archive of this queue, or None: what `read` goes on with before the log begins.

        Nothing leaves a topic that is archived before it is archived, unless that has `retention_force`. A
        relative path begins at the data directory. Raises NotFound when there is no archive.
        """
        if directory is not None and not isinstance(directory, str | os.PathLike):
            raise InvalidRequest(f"an archive is the path of a directory, not {directory!r}")
        await self.backend.perform(UseArchive(None if directory is None else os.fspath(directory)))

    async def verify(self) -> Report:
        """Check every byte of every log, while the queue is in use."""
        return await self.backend.perform(Verify())

    async def backup(
        self,
        target: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Backup:
        """Store the queue as it is now in a directory, or at a URL such as s3://bucket/path.

        Others go on meanwhile. All that was acknowledged before is in it; of what the target has from
        earlier backups of this queue, nothing is stored again. `quivermq.restore` makes a queue of it. A
        broker writes to its own machine or network, and only to `server.backup_target` of its settings:
        raises Denied. `progress` is called with how many bytes of how many are done, but not by a broker.
        Raises Conflict when the target is another queue's or has something else in it, and while another
        backup is made; StorageFailed, DiskRefused, StoreUnreachable, StoreDenied, StoreNotFound: the
        target then has what it had before.
        """
        if not isinstance(target, str | os.PathLike):
            raise InvalidRequest(f"backups go into a directory or to a URL, not {target!r}")
        return await self.backend.perform(MakeBackup(os.fspath(target), progress))

    async def close(self) -> None:
        """Write and sync everything and let go of the directory, or let go of the broker.

        Closing twice is allowed; what waits in another thread raises Closing. Consumers commit and leave
        their groups first; producers send what they have, and raise here what they cannot. What `process`
        and `stream` are at is released; other leases stay as they are. Raises DiskFull when buffered
        messages cannot be written: call it again once there is room. In a signal handler that has
        interrupted a call of this thread, it returns at once: waiting for messages ends, other calls come
        to their end, and then the queue is closed.
        """
        await self._close(is_finished=True)

    async def _close(self, *, is_finished: bool) -> None:
        await close_all(
            self.backend, self._renewer, self._streams, self._producers, self._consumers, is_finished
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: object, *_: object) -> None:
        # A block that raised did not finish what its consumers last gave it: that is to be delivered again.
        await self._close(is_finished=error is None)
