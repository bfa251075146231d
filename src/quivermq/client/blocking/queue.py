"""A queue over the wire: the methods of the embedded one, each of them a flow that is run."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from quivermq.client.blocking.streaming import Stream
from quivermq.client.blocking.taking import Taking
from quivermq.client.core.place import Claim, Place
from quivermq.client.core.queue import Filter, Held, QueueCalls
from quivermq.client.core.settling import Claims
from quivermq.client.core.words import told
from quivermq.delivery.delivery import is_stop, release_unsettled
from quivermq.engine.queue import PREFETCH_MAX
from quivermq.errors import Closing, LeaseExpired, Unreachable
from quivermq.model.checks import Moment, Period, check_number
from quivermq.model.dead_letters import DeadLetter, DeadLetterReason
from quivermq.model.deliveries import Delivery, InFlight
from quivermq.model.messages import Message, Put, Scheduled, StoredMessage, Timeline
from quivermq.model.stats import QueueStats
from quivermq.settings import Durability

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from quivermq.client.blocking.connection import Connection


class RemoteQueue:
    """Made by `Connection.queue`. Cheap to make, and to share between threads."""

    def __init__(self, connection: "Connection", topic: str, group: str) -> None:
        self._calls = QueueCalls(connection.calls, topic, group, self._make_place)
        self._connection = connection
        self._run = connection.shell.run
        self.topic = topic
        self.group = group

    def __repr__(self) -> str:
        return f"<RemoteQueue {self.topic}, group {self.group}, of {self._connection.url}>"

    # In.

    def put(
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
        """Put one message into the topic, which is created when it is new.

        As `Queue.put`. Raises Unreachable when there is no answer: with a `dedup_id` it is sent again
        before that, without one nobody knows whether it was stored.
        """
        return self._run(
            self._calls.put(
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
        )

    def put_many(
        self, messages: Iterable[bytes | Message], *, durability: Durability | None = None
    ) -> Sequence[Put]:
        """Put messages, each just a value or a `Message`. As `Queue.put_many`."""
        return self._run(self._calls.put_many(messages, durability=durability))

    def put_frame(
        self,
        frame: bytes,
        *,
        partition: int | None = None,
        priority: str = "normal",
        durability: Durability | None = None,
    ) -> Put:
        """Append a frame that was encoded elsewhere, as it is; the put is that of its first message."""
        flow = self._calls.put_frame(frame, partition=partition, priority=priority, durability=durability)
        return self._run(flow)

    def sync(self) -> None:
        """Return once everything that was put into the topic so far is on stable storage."""
        self._run(self._calls.sync())

    # Out.

    def get(self, timeout: Period | None = 0, *, lease: Period | None = None) -> Delivery | None:
        """The next message, or None when there is none within `timeout` seconds; None waits for ever."""
        taking = Taking(self._connection.takings, self._calls)
        try:
            found = self._run(self._calls.get(timeout, lease=lease, tokens=taking.tokens))
            taking.done()
            return found
        except BaseException as error:
            taking.give_back(error)
            raise

    def get_many(
        self, count: int, timeout: Period | None = 0, *, lease: Period | None = None
    ) -> list[Delivery]:
        """Up to `count` messages: what is there, or, when nothing is, what comes first."""
        taking = Taking(self._connection.takings, self._calls)
        try:
            found = self._run(self._calls.get_many(count, timeout, lease=lease, tokens=taking.tokens))
            taking.done()
            return found
        except BaseException as error:
            taking.give_back(error)
            raise

    def pop(self, timeout: Period | None = 0) -> Delivery | None:
        """The next message, acknowledged at once: if it is lost from here on, it is lost."""
        return self._run(self._calls.pop(timeout))

    @contextmanager
    def process(
        self, timeout: Period | None = 0, *, lease: Period | None = None
    ) -> Iterator[Delivery | None]:
        """The next message for a `with` block: acked at its end, nacked when it raises.

        Released when the block is left because the program, a task or a generator ends, as `Queue.process`
        has it. The lease is renewed as long as the block runs. None when there is no message.
        """
        message, is_given, taking = None, False, Taking(self._connection.takings, self._calls)
        try:
            message = self._run(self._calls.get(timeout, lease=lease, tokens=taking.tokens))
            if message is not None:
                self._hold(message, lease)
            taking.done()
            is_given = True
            yield message
        except BaseException as error:
            if message is None:
                if not is_given:
                    taking.give_back(error)
                raise
            taking.done()
            if is_stop(error) or not is_given:
                release_unsettled(self, [message], partial(self._connection.renewer.release, message))
                raise
            self._connection.renewer.release(message)
            # What the handler raised is what the caller has to know.
            with suppress(LeaseExpired, Closing, Unreachable):
                if not message.is_settled:
                    message.nack(reason=type(error).__name__, error=told(error))
            raise
        if message is None:
            return
        try:
            self._connection.renewer.release(message)
            if not message.is_settled:
                message.ack()
        except BaseException as error:
            if is_stop(error):
                # Nobody knows whether it was acked: if not, it comes again, and no attempt counts.
                release_unsettled(self, [message], partial(self._connection.renewer.release, message))
            raise

    def stream(
        self, timeout: Period | None = None, *, lease: Period | None = None, prefetch: int = 1
    ) -> Generator[Delivery, None, None]:
        """Message after message; each is acked when the next one is asked for.

        Ends when none comes for `timeout` seconds, by default never. With `prefetch`, so many are taken
        ahead, their leases renewed until it is their turn, and acks sent together, a moment later. What the
        loop did not get past is released. An error that leaves the loop looks like a `break` from in here:
        use `process` in the loop, or `nack`, for what may fail.
        """
        check_number("prefetch", prefetch, 1, PREFETCH_MAX)
        if prefetch > 1:
            stream = Stream(self._connection, self, self._calls, timeout, lease, prefetch)
            self._connection.streams.add(stream)
            return stream.messages()
        return self._one_by_one(timeout, lease)

    def _one_by_one(self, timeout: Period | None, lease: Period | None) -> Generator[Delivery, None, None]:
        while True:
            message, taking = None, Taking(self._connection.takings, self._calls)
            try:
                message = self._run(self._calls.get(timeout, lease=lease, tokens=taking.tokens))
                if message is None:
                    taking.done()
                    return
                self._hold(message, lease)
                taking.done()
                yield message
                self._connection.renewer.release(message)
                if not message.is_settled:
                    message.ack()
            except BaseException as error:
                if message is None:
                    taking.give_back(error)
                else:
                    taking.done()
                    release_unsettled(self, [message], partial(self._connection.renewer.release, message))
                raise

    def _hold(self, message: Delivery, lease: Period | None) -> None:
        lease_s = self._run(self._calls.lease_s(message.topic, lease))
        self._connection.renewer.hold(self, message, lease_s)

    # Settling.

    def ack(self, held: Held) -> None:
        """Messages are done with.

        Those whose receipts still hold are settled in any case; then LeaseExpired tells of the others.
        """
        self._run(self._calls.ack(held))

    def nack(
        self,
        held: Held,
        delay: Period | None = None,
        reason: str | None = None,
        *,
        error: str | None = None,
    ) -> None:
        """Messages failed and are tried again, after `delay` seconds or a growing wait."""
        self._run(self._calls.nack(held, delay, reason, error=error))

    def release(self, held: Held) -> None:
        """Messages are given back as if they had not been handed out: at once, and no attempt counts."""
        self._run(self._calls.release(held))

    def reject(self, held: Held, reason: str | None = None, *, error: str | None = None) -> None:
        """Messages can never succeed: they become dead letters at once."""
        self._run(self._calls.reject(held, reason, error=error))

    def extend(self, held: Held, seconds: Period) -> None:
        """Leases last for so many seconds from now."""
        self._run(self._calls.extend(held, seconds))

    # The log.

    def seek(
        self,
        to: str | None = None,
        *,
        offset: int | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        priority: str | None = None,
    ) -> None:
        """Let the group go on from elsewhere: "earliest", "latest", an offset, or a moment.

        The earliest may be archived. Raises OffsetOutOfRange, and StorageFailed without the archive.
        """
        flow = self._calls.seek(
            to, offset=offset, timestamp=timestamp, partition=partition, priority=priority
        )
        self._run(flow)

    def read(
        self,
        partition: int = 0,
        start: int | None = None,
        limit: int = 100,
        *,
        priority: str = "normal",
        key: bytes | None = None,
        text: bytes | None = None,
    ) -> list[StoredMessage]:
        """Messages of one lane from an offset on, by default the earliest, for looking only.

        With `key` or `text` only those that have it, as `Queue.read` has it.
        """
        return self._run(self._calls.read(partition, start, limit, priority=priority, key=key, text=text))

    def to_arrow(
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
        return self._run(self._calls.to_arrow(partition, start, end, limit=limit, priority=priority))

    def to_pandas(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        priority: str | None = None,
    ) -> "pd.DataFrame":
        """The same as a `pandas.DataFrame`. Needs pandas."""
        return self.to_arrow(partition, start, end, limit=limit, priority=priority).to_pandas()

    def peek(self, limit: int = 1) -> list[StoredMessage]:
        """The next messages that nobody in the group has had, without taking them."""
        return self._run(self._calls.peek(limit))

    # Looking after.

    def stats(self) -> QueueStats:
        """How much there is for the group, and how far it has come."""
        return self._run(self._calls.stats())

    def deliveries(self, limit: int = 100, after: InFlight | None = None) -> list[InFlight]:
        """What is in flight: who has what, and until when. As `Queue.deliveries`."""
        return self._run(self._calls.deliveries_in_flight(limit, after))

    def dead_letters(self, limit: int | None = None) -> list[DeadLetter]:
        """The messages of this topic that were given up, by whichever group."""
        return self._run(self._calls.dead_letters(limit))

    def dead_letter_reasons(self) -> list[DeadLetterReason]:
        """How many messages of this topic were given up for which reason, the most frequent first."""
        return self._run(self._calls.dead_letter_reasons())

    def redrive(
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
        return self._run(self._calls.redrive(filter, limit, ids, edits))

    def discard(
        self,
        filter: Filter | None = None,  # noqa: A002 - As in redrive.
        limit: int | None = None,
        ids: Collection[str] | None = None,
    ) -> int:
        """Take dead letters out for good, and return how many."""
        return self._run(self._calls.discard(filter, limit, ids))

    def scheduled(self, limit: int | None = None) -> list[Scheduled]:
        """The delayed messages that wait, the next one first."""
        return self._run(self._calls.scheduled(limit))

    def timeline(self, until: Moment | None = None, bins: int = 60) -> Timeline:
        """How many delayed messages are due when, in equal spans from now on, by default up to the last."""
        return self._run(self._calls.timeline(until, bins))

    def cancel(self, scheduled_id: str) -> bool:
        """Call a delayed message off. False when it is not waiting any more, or never was."""
        return self._run(self._calls.cancel(scheduled_id))

    def cancel_many(self, scheduled_ids: Collection[str]) -> int:
        """Call delayed messages off, and return how many of them were still waiting."""
        return self._run(self._calls.cancel_many(scheduled_ids))

    def deliver_now(self, scheduled_id: str) -> bool:
        """Let a delayed message come before it is due. False when it is not waiting, or never was."""
        return self._run(self._calls.deliver_now(scheduled_id))

    def purge(self) -> int:
        """Take every message out of the topic for good, delayed ones included, and return how many.

        No group gets them any more; who has one in hand may still settle it. Dead letters stay.
        """
        return self._run(self._calls.purge())

    def pause(self) -> None:
        """Give the group nothing more of the topic until `resume`, also after a restart.

        Who waits goes on waiting, and what is in hand can be settled. Members in stream mode pause by
        themselves.
        """
        self._run(self._calls.pause())

    def resume(self) -> None:
        """Let a group go on that was paused."""
        self._run(self._calls.resume())

    def retry_now(self) -> int:
        """Let everything that failed and waits for its next attempt have it now. Returns how many."""
        return self._run(self._calls.retry_now())

    def settle_claims(self, act: str, claims: Claims, fields: Mapping[str, object]) -> None:
        """For deliveries, which settle themselves."""
        self._run(self._calls.settle(act, claims, fields))

    def _make_place(self, topic: str, partition: int, group: str) -> Place:
        return SettlingPlace(self, self._calls, topic, partition, group)


class SettlingPlace(Place):
    """Where a delivery came from, and whom it asks to settle it."""

    __slots__ = ("_calls", "_queue")

    def __init__(
        self, queue: RemoteQueue, calls: QueueCalls, topic: str, partition: int, group: str
    ) -> None:
        super().__init__(topic, partition, group)
        self._queue = queue
        self._calls = calls

    def ack_one(self, lane: int, offset: int, token: int) -> None:
        self._queue.settle_claims("ack", self._claims(lane, [(offset, token)]), {})

    def nack(
        self,
        lane: int,
        claims: Sequence[Claim],
        delay: Period | None,
        reason: str | None,
        error: str | None,
    ) -> None:
        fields = self._calls.nack_fields(delay, reason, error)
        self._queue.settle_claims("nack", self._claims(lane, claims), fields)

    def release(self, lane: int, claims: Sequence[Claim]) -> None:
        self._queue.settle_claims("release", self._claims(lane, claims), {})

    def reject(self, lane: int, claims: Sequence[Claim], reason: str | None, error: str | None) -> None:
        fields = self._calls.reject_fields(reason, error)
        self._queue.settle_claims("reject", self._claims(lane, claims), fields)

    def extend(self, lane: int, claims: Sequence[Claim], seconds: Period) -> None:
        fields = self._calls.extend_fields(seconds)
        self._queue.settle_claims("extend", self._claims(lane, claims), fields)

    def _claims(self, lane: int, claims: Sequence[Claim]) -> Claims:
        found = Claims()
        for offset, token in claims:
            found.add((self.topic, self.partition, lane, token), offset)
        return found
