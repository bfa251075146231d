"""A queue whose methods are awaited: the same names, over the wire or embedded."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.streaming import AsyncStream
from quivermq.client.core.queue import Filter
from quivermq.client.core.words import told
from quivermq.delivery.delivery import is_stop
from quivermq.engine.queue import PREFETCH_MAX
from quivermq.errors import Closing, LeaseExpired, Unreachable
from quivermq.model.checks import Moment, Period, check_number
from quivermq.model.dead_letters import DeadLetter, DeadLetterReason
from quivermq.model.deliveries import InFlight
from quivermq.model.messages import Message, Put, Scheduled, StoredMessage, Timeline
from quivermq.model.stats import QueueStats
from quivermq.settings import Durability

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from quivermq.client.asynchronous.connection import AsyncConnection

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
        ttl: Period | None = None,
        delay: Period | None = None,
        deliver_at: Moment | None = None,
        dedup_id: str | None = None,
        dedup_window: Period | None = None,
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
            dedup_window=dedup_window,
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

    async def sync(self) -> None:
        """Return once everything that was put into the topic so far is on stable storage."""
        await self._call("sync")

    # Out.

    async def get(
        self,
        timeout: Period | None = 0,
        *,
        lease: Period | None = None,
    ) -> AsyncDelivery | None:
        """The next message, or None when there is none within `timeout` seconds; None waits for ever."""
        held = await self._call("get", timeout=timeout, lease=lease)
        return None if held is None else AsyncDelivery(held, self)

    async def get_many(
        self,
        count: int,
        timeout: Period | None = 0,
        *,
        lease: Period | None = None,
    ) -> list[AsyncDelivery]:
        """Up to `count` messages: what is there, or, when nothing is, what comes first."""
        held = await self._call("get_many", count, timeout=timeout, lease=lease)
        return [AsyncDelivery(each, self) for each in held]

    async def pop(self, timeout: Period | None = 0) -> AsyncDelivery | None:
        """The next message, acknowledged at once: if it is lost from here on, it is lost."""
        held = await self._call("pop", timeout=timeout)
        return None if held is None else AsyncDelivery(held, self)

    @asynccontextmanager
    async def process(
        self,
        timeout: Period | None = 0,
        *,
        lease: Period | None = None,
    ) -> AsyncIterator[AsyncDelivery | None]:
        """The next message for an `async with` block: acked at its end, nacked when it raises.

        Released when the task is cancelled or the program ends, as `Queue.process` has it. The lease is
        renewed as long as the block runs. None when there is no message.
        """
        message = await self.get(timeout, lease=lease)
        if message is None:
            yield None
            return
        is_given = False
        try:
            await self._hold(message, lease)
            is_given = True
            yield message
        except BaseException as error:
            self._connection.renewer.release(message)
            if is_stop(error) or not is_given:
                await self._connection.give_back(self, [message])
                raise
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
        timeout: Period | None = None,
        *,
        lease: Period | None = None,
        prefetch: int = 1,
    ) -> AsyncGenerator[AsyncDelivery, None]:
        """Message after message; each is acked when the next one is asked for.

        As `Queue.stream`. A generator that is left early gives back what it holds when it is closed: use
        `contextlib.aclosing`, or the next collection of garbage does it.
        """
        check_number("prefetch", prefetch, 1, PREFETCH_MAX)
        if prefetch > 1:
            stream = AsyncStream(self._connection, self, timeout, lease, prefetch)
            self._connection.streams.add(stream)
            return stream.messages()
        return self._one_by_one(timeout, lease)

    async def _one_by_one(
        self, timeout: Period | None, lease: Period | None
    ) -> AsyncGenerator[AsyncDelivery, None]:
        while (message := await self.get(timeout, lease=lease)) is not None:
            try:
                await self._hold(message, lease)
                yield message
            except BaseException:
                self._connection.renewer.release(message)
                await self._connection.give_back(self, [message])
                raise
            self._connection.renewer.release(message)
            if not message.is_settled:
                await message.ack()

    async def _hold(self, message: AsyncDelivery, lease: Period | None) -> None:
        self._connection.renewer.hold(self, message, await self.lease_s(message.topic, lease))

    async def lease_s(self, topic: str, lease: Period | None) -> float:
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
        delay: Period | None = None,
        reason: str | None = None,
        *,
        error: str | None = None,
    ) -> None:
        """Messages failed and are tried again, after `delay` seconds or a growing wait."""
        await self._call("nack", _plain(held), delay, reason, error=error)

    async def release(self, held: AsyncHeld) -> None:
        """Messages are given back as if they had not been handed out: at once, and no attempt counts."""
        await self._call("release", _plain(held))

    async def reject(self, held: AsyncHeld, reason: str | None = None, *, error: str | None = None) -> None:
        """Messages can never succeed: they become dead letters at once."""
        await self._call("reject", _plain(held), reason, error=error)

    async def extend(self, held: AsyncHeld, seconds: Period) -> None:
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

    async def to_arrow(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        priority: str | None = None,
    ) -> "pa.Table":
        """Messages of the topic as a `pyarrow.Table`, with the columns that they have for Spark.

        All of them, or those of a partition, of a priority, and with offsets in [start, end), `limit` at
        most, in order of partition, priority and offset. Raises InvalidRequest without pyarrow, and
        OffsetOutOfRange for offsets that are gone.
        """
        return await self._call("to_arrow", partition, start, end, limit=limit, priority=priority)

    async def to_pandas(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        priority: str | None = None,
    ) -> "pd.DataFrame":
        """The same as a `pandas.DataFrame`. Needs pandas."""
        table = await self.to_arrow(partition, start, end, limit=limit, priority=priority)
        return table.to_pandas()

    async def peek(self, limit: int = 1) -> list[StoredMessage]:
        """The next messages that nobody in the group has had, without taking them."""
        return cast(list[StoredMessage], await self._call("peek", limit))

    # Looking after.

    async def stats(self) -> QueueStats:
        """How much there is for the group, and how far it has come."""
        return cast(QueueStats, await self._call("stats"))

    async def deliveries(self, limit: int = 100, after: InFlight | None = None) -> list[InFlight]:
        """What is in flight: who has what, and until when. As `Queue.deliveries`."""
        return await self._source.in_flight(limit, after)

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

    async def cancel_many(self, scheduled_ids: Collection[str]) -> int:
        """Call delayed messages off, and return how many of them were still waiting."""
        return cast(int, await self._call("cancel_many", scheduled_ids))

    async def deliver_now(self, scheduled_id: str) -> bool:
        """Let a delayed message come before it is due. False when it is not waiting, or never was."""
        return cast(bool, await self._call("deliver_now", scheduled_id))

    async def purge(self) -> int:
        """Take every message out of the topic for good, delayed ones included, and return how many.

        No group gets them any more; who has one in hand may still settle it. Dead letters stay.
        """
        return cast(int, await self._call("purge"))

    async def pause(self) -> None:
        """Give the group nothing more of the topic until `resume`, also after a restart.

        Who waits goes on waiting, and what is in hand can be settled. Members in stream mode pause by
        themselves.
        """
        await self._call("pause")

    async def resume(self) -> None:
        """Let a group go on that was paused."""
        await self._call("resume")

    async def retry_now(self) -> int:
        """Let everything that failed and waits for its next attempt have it now. Returns how many."""
        return cast(int, await self._call("retry_now"))


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
