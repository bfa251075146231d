"""A queue whose methods are awaited: the same names, over the wire or embedded."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.streaming import AsyncStream
from quivermq.client.core.queue import Filter
from quivermq.client.core.words import told
from quivermq.delivery.dead_letters import DeadLetter
from quivermq.engine.looking import StoredMessage
from quivermq.engine.reasons import DeadLetterReason
from quivermq.engine.stats import QueueStats
from quivermq.errors import Closing, LeaseExpired, Unreachable
from quivermq.settings import Durability
from quivermq.topic.delay import Scheduled, Timeline
from quivermq.topic.incoming import Message, Moment, check_number
from quivermq.topic.put import Put

if TYPE_CHECKING:
    from quivermq.client.asynchronous.connection import AsyncConnection

_PREFETCH_MAX = 10_000

AsyncHeld = AsyncDelivery | str | Iterable[AsyncDelivery | str]


class AsyncQueue:
    """Made by `AsyncConnection.queue`. Cheap to make, and to share between tasks of one event loop."""

    def __init__(self, connection: "AsyncConnection", topic: str, group: str) -> None:
        self._source = connection.source.queue(topic, group)
        self._connection = connection
        self._call = self._source.call
        self.topic = topic
        self.group = group

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.topic}, group {self.group}, of {self._connection.source.name}>"

    # In.

    async def put(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        priority: str = "normal",
        ttl: float | None = None,
        delay: float | None = None,
        deliver_at: Moment | None = None,
        dedup_id: str | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        durability: Durability | None = None,
    ) -> Put:
        """Put one message into the topic, which is created when it is new. As `Queue.put`."""
        put = await self._call(
            "put",
            value,
            key=key,
            headers=headers,
            priority=priority,
            ttl=ttl,
            delay=delay,
            deliver_at=deliver_at,
            dedup_id=dedup_id,
            timestamp=timestamp,
            partition=partition,
            durability=durability,
        )
        return cast(Put, put)

    async def put_many(
        self, messages: Iterable[bytes | Message], *, durability: Durability | None = None
    ) -> Sequence[Put]:
        """Put messages, each just a value or a `Message`. As `Queue.put_many`."""
        return cast(Sequence[Put], await self._call("put_many", messages, durability=durability))

    async def put_frame(
        self,
        frame: bytes,
        *,
        partition: int | None = None,
        priority: str = "normal",
        durability: Durability | None = None,
    ) -> Put:
        """Append a frame that was encoded elsewhere, as it is; the put is that of its first message."""
        put = await self._call(
            "put_frame", frame, partition=partition, priority=priority, durability=durability
        )
        return cast(Put, put)

    # Out.

    async def get(
        self,
        timeout: float | None = 0,
        *,
        lease: float | None = None,
    ) -> AsyncDelivery | None:
        """The next message, or None when there is none within `timeout` seconds; None waits for ever."""
        held = await self._call("get", timeout=timeout, lease=lease)
        return None if held is None else AsyncDelivery(held, self)

    async def get_many(
        self,
        count: int,
        timeout: float | None = 0,
        *,
        lease: float | None = None,
    ) -> list[AsyncDelivery]:
        """Up to `count` messages: what is there, or, when nothing is, what comes first."""
        held = await self._call("get_many", count, timeout=timeout, lease=lease)
        return [AsyncDelivery(each, self) for each in held]

    async def pop(self, timeout: float | None = 0) -> AsyncDelivery | None:
        """The next message, acknowledged at once: if it is lost from here on, it is lost."""
        held = await self._call("pop", timeout=timeout)
        return None if held is None else AsyncDelivery(held, self)

    @asynccontextmanager
    async def process(
        self,
        timeout: float | None = 0,
        *,
        lease: float | None = None,
    ) -> AsyncIterator[AsyncDelivery | None]:
        """The next message for an `async with` block: acked at its end, nacked when it raises.

        The lease is renewed as long as the block runs. None when there is no message.
        """
        message = await self.get(timeout, lease=lease)
        if message is None:
            yield None
            return
        try:
            await self._hold(message, lease)
            yield message
        except BaseException as error:
            self._connection.renewer.release(message)
            # What the handler raised is what the caller has to know.
            with suppress(LeaseExpired, Closing, Unreachable):
                if not message.is_settled:
                    await message.nack(reason=type(error).__name__, error=told(error))
            raise
        self._connection.renewer.release(message)
        if not message.is_settled:
            await message.ack()

    def stream(
        self,
        timeout: float | None = None,
        *,
        lease: float | None = None,
        prefetch: int = 1,
    ) -> AsyncGenerator[AsyncDelivery, None]:
        """Message after message; each is acked when the next one is asked for.

        As `Queue.stream`. A generator that is left early gives back what it holds when it is closed: use
        `contextlib.aclosing`, or the next collection of garbage does it.
        """
        check_number("prefetch", prefetch, 1, _PREFETCH_MAX)
        if prefetch > 1:
            stream = AsyncStream(self._connection, self, timeout, lease, prefetch)
            self._connection.streams.add(stream)
            return stream.messages()
        return self._one_by_one(timeout, lease)

    async def _one_by_one(
        self, timeout: float | None, lease: float | None
    ) -> AsyncGenerator[AsyncDelivery, None]:
        while (message := await self.get(timeout, lease=lease)) is not None:
            try:
                await self._hold(message, lease)
                yield message
            except BaseException:
                self._connection.renewer.release(message)
                # A lease that is lost needs no giving back.
                with suppress(LeaseExpired, Closing, Unreachable):
                    if not message.is_settled:
                        await message.nack(delay=0, reason="stream closed")
                raise
            self._connection.renewer.release(message)
            if not message.is_settled:
                await message.ack()

    async def _hold(self, message: AsyncDelivery, lease: float | None) -> None:
        self._connection.renewer.hold(self, message, await self.lease_s(message.topic, lease))

    async def lease_s(self, topic: str, lease: float | None) -> float:
        """How long a lease lasts, as given or as the topic is set."""
        return await self._source.lease_s(topic, lease)

    # Settling.

    async def ack(self, held: AsyncHeld) -> None:
        """Messages are done with.

        Those whose receipts still hold are settled in any case; then LeaseExpired tells of the others.
        """
        await self._call("ack", _plain(held))

    async def nack(
        self,
        held: AsyncHeld,
        delay: float | None = None,
        reason: str | None = None,
        *,
        error: str | None = None,
    ) -> None:
        """Messages failed and are tried again, after `delay` seconds or a growing wait."""
        await self._call("nack", _plain(held), delay, reason, error=error)

    async def reject(self, held: AsyncHeld, reason: str | None = None, *, error: str | None = None) -> None:
        """Messages can never succeed: they become dead letters at once."""
        await self._call("reject", _plain(held), reason, error=error)

    async def extend(self, held: AsyncHeld, seconds: float) -> None:
        """Leases last for so many seconds from now."""
        await self._call("extend", _plain(held), seconds)

    # The log.

    async def seek(
        self,
        to: str | None = None,
        *,
        offset: int | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        priority: str | None = None,
    ) -> None:
        """Let the group go on from elsewhere: "earliest", "latest", an offset, or a moment."""
        await self._call(
            "seek", to, offset=offset, timestamp=timestamp, partition=partition, priority=priority
        )

    async def read(
        self,
        partition: int = 0,
        start: int | None = None,
        limit: int = 100,
        *,
        priority: str = "normal",
        key: bytes | None = None,
        text: bytes | None = None,
    ) -> list[StoredMessage]:
        """Messages of one lane from an offset on, by default the earliest, for looking only."""
        found = await self._call("read", partition, start, limit, priority=priority, key=key, text=text)
        return cast(list[StoredMessage], found)

    async def peek(self, limit: int = 1) -> list[StoredMessage]:
        """The next messages that nobody in the group has had, without taking them."""
        return cast(list[StoredMessage], await self._call("peek", limit))

    # Looking after.

    async def stats(self) -> QueueStats:
        """How much there is for the group, and how far it has come."""
        return cast(QueueStats, await self._call("stats"))

    async def dead_letters(self, limit: int | None = None) -> list[DeadLetter]:
        """The messages of this topic that were given up, by whichever group."""
        return cast(list[DeadLetter], await self._call("dead_letters", limit))

    async def dead_letter_reasons(self) -> list[DeadLetterReason]:
        """How many messages of this topic were given up for which reason, the most frequent first."""
        return cast(list[DeadLetterReason], await self._call("dead_letter_reasons"))

    async def redrive(
        self,
        filter: Filter | None = None,  # noqa: A002 - The contract's word.
        limit: int | None = None,
        ids: Collection[str] | None = None,
        edits: Mapping[str, Message] | None = None,
    ) -> int:
        """Send dead letters back to where they came from: all, or those of these ids that the filter wants.

        Where `edits` has a message for an id, that one goes back in its place; without `ids`, only those
        move. Returns how many.
        """
        return cast(int, await self._call("redrive", filter, limit, ids, edits))

    async def discard(
        self,
        filter: Filter | None = None,  # noqa: A002 - As in redrive.
        limit: int | None = None,
        ids: Collection[str] | None = None,
    ) -> int:
        """Take dead letters out for good, and return how many."""
        return cast(int, await self._call("discard", filter, limit, ids))

    async def scheduled(self, limit: int | None = None) -> list[Scheduled]:
        """The delayed messages that wait, the next one first."""
        return cast(list[Scheduled], await self._call("scheduled", limit))

    async def timeline(self, until: Moment | None = None, bins: int = 60) -> Timeline:
        """How many delayed messages are due when, in equal spans from now on, by default up to the last."""
        return cast(Timeline, await self._call("timeline", until, bins))

    async def cancel(self, scheduled_id: str) -> bool:
        """Call a delayed message off. False when it is not waiting any more, or never was."""
        return cast(bool, await self._call("cancel", scheduled_id))


def _plain(held: Any) -> Any:
    """The deliveries that are wrapped; the rest as it is, for the queue to judge."""
    if isinstance(held, AsyncDelivery):
        return held.held
    if isinstance(held, str) or not isinstance(held, Iterable):
        return held
    items = list(held)
    if set(map(type, items)) == {AsyncDelivery}:
        return [item.held for item in items]
    return [item.held if isinstance(item, AsyncDelivery) else item for item in items]
