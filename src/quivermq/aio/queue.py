# Made by tools/asynchronous.py from queue/queue.py: change that, and run `make asynchronous`.

"""A topic, or all topics of a pattern, as one group sees it: what producers and consumers hold in hand.

Written once, over a backend: the same class for a directory, a broker, and whatever comes later. The
asynchronous one, `quivermq.aio.AsyncQueue`, is made from it by `tools/asynchronous.py`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from os import getpid
from typing import TYPE_CHECKING, Literal, overload

from quivermq.aio.backend import AsyncBackend
from quivermq.aio.finishing import finish, log_unreleased
from quivermq.aio.renewing import AsyncRenewer
from quivermq.aio.streaming import AsyncStream, AsyncStreams
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.errors import (
    Closing,
    InvalidRequest,
    LeaseExpired,
    OffsetOutOfRange,
    QuiverError,
    Unreachable,
)
from quivermq.frame import OFFSET_MAX, Wanted
from quivermq.log.entries import check_durability
from quivermq.model.checks import (
    Moment,
    Period,
    check_ids,
    check_limit,
    check_number,
    moment_us,
    seconds_of,
)
from quivermq.model.claims import AnyHeld, Claims
from quivermq.model.dead_letters import (
    NO_EDITS,
    DeadLetter,
    DeadLetterReason,
    Filter,
    check_edits,
    check_filter,
)
from quivermq.model.deliveries import InFlight, check_after, is_stop
from quivermq.model.lanes import Priority, check_priority
from quivermq.model.messages import BINS_MAX, Message, Put, Scheduled, StoredMessage, Timeline
from quivermq.model.names import Scope, check_group_name
from quivermq.model.operations import (
    Cancel,
    CountPartitions,
    CountReasons,
    CountScheduled,
    DeliverNow,
    Discard,
    GetLeaseSeconds,
    GetQueueStats,
    ListDeadLetters,
    ListDeliveries,
    ListScheduled,
    PauseGroup,
    Peek,
    Purge,
    Redrive,
    RetryNow,
    Seek,
    SeekTarget,
    Settle,
    SyncTopic,
    Tokens,
)
from quivermq.model.stats import QueueStats
from quivermq.model.topic_settings import PARTITIONS_MAX
from quivermq.queue.tables import PageRequest, TableRange, check_arrow, is_behind, table_of
from quivermq.queue.window import STREAM_OF_PARENT
from quivermq.settings import Durability

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_MANY_MAX = 100_000
_READ_MAX = 100_000
_PREFETCH_MAX = 10_000
# What can be walked over, and is a single message all the same.
_ONE_ALONE = (bytes, bytearray, memoryview, str, Message)
_EVERYTHING = Wanted(None, None)


class AsyncQueue:
    """Made by `AsyncConnection.queue`. Cheap to make, and to share between threads."""

    def __init__(
        self, backend: AsyncBackend, renewer: AsyncRenewer, streams: AsyncStreams, topic: str, group: str
    ) -> None:
        check_group_name(group)
        self._scope = Scope(topic)
        self.topic = topic
        self.group = group
        self._clock = backend.clock
        self._backend = backend.queue(topic, group)
        self._renewer = renewer
        self._streams = streams
        self._where = backend.name

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.topic}, group {self.group}, of {self._where}>"

    # In.

    async def put(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        priority: Priority = "normal",
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

        `ttl`, `delay` and `dedup_window` are seconds; `deliver_at` and `timestamp` are unix microseconds as
        an int, unix seconds as a float, or a datetime. Raises InvalidRequest, Overloaded or DiskRefused:
        then nothing was stored. Raises StorageFailed: then only opening the queue again tells. Raises
        Unreachable when a broker does not answer: with a `dedup_id` it was asked again before that, without
        one nobody knows whether the message was stored.
        """
        if durability is not None:
            check_durability(durability)
        return await self._backend.put(
            value, key, headers, priority, ttl, delay, deliver_at, dedup_id, timestamp, partition,
            dedup_window, durability,
        )  # fmt: skip

    async def put_many(
        self, messages: Iterable[bytes | Message], *, durability: Durability | None = None
    ) -> Sequence[Put]:
        """Put messages, each just a value or a `Message`. All are checked before the first is stored.

        Those of one lane are stored together or not at all. When the disk is full or fails between two
        lanes, the first one keeps its messages: give them a `dedup_id` to put them all again safely.
        """
        if durability is not None:
            check_durability(durability)
        # A copy, because somebody may add to the list while its messages are stored.
        copied = messages[:] if type(messages) is list else _listed(messages)
        return await self._backend.put_many(copied, durability)

    async def put_frame(
        self,
        frame: bytes,
        *,
        partition: int | None = None,
        priority: Priority = "normal",
        durability: Durability | None = None,
    ) -> Put:
        """Append a frame that was encoded elsewhere, as it is; the put is that of its first message.

        One whose producer sent it before, as its id, epoch and sequence tell, is answered with the offset
        it got then, and `duplicate`. Raises InvalidFrame, Conflict.
        """
        if durability is not None:
            check_durability(durability)
        check_priority(priority)
        return await self._backend.put_frame(frame, partition, priority, durability)

    async def sync(self) -> None:
        """Return once everything that was put into the topic so far is on stable storage.

        Whatever its durability. Raises TopicNotFound, StorageFailed.
        """
        self._scope.check_single("sync")
        await self._backend.perform(SyncTopic())

    # Out.

    @overload
    async def get(self, timeout: None, *, lease: Period | None = None) -> AsyncDelivery: ...
    @overload
    async def get(self, timeout: Period = 0, *, lease: Period | None = None) -> AsyncDelivery | None: ...
    async def get(self, timeout: Period | None = 0, *, lease: Period | None = None) -> AsyncDelivery | None:
        """The next message, or None when there is none within `timeout` seconds; None waits for ever.

        It is leased for `lease` seconds, by default as the topic is set: settle it before that.
        """
        tokens: Tokens = []
        try:
            found = await self._backend.take(1, timeout, lease, tokens)
            return found[0] if found else None
        except BaseException as error:
            await self._give_back(tokens, error)
            raise

    async def get_many(
        self, count: int, timeout: Period | None = 0, *, lease: Period | None = None
    ) -> list[AsyncDelivery]:
        """Up to `count` messages: what is there, or, when nothing is, what comes first."""
        check_number("count", count, 1, _MANY_MAX)
        tokens: Tokens = []
        try:
            return await self._backend.take(count, timeout, lease, tokens)
        except BaseException as error:
            await self._give_back(tokens, error)
            raise

    @overload
    async def pop(self, timeout: None) -> AsyncDelivery: ...
    @overload
    async def pop(self, timeout: Period = 0) -> AsyncDelivery | None: ...
    async def pop(self, timeout: Period | None = 0) -> AsyncDelivery | None:
        """The next message, acknowledged at once: if it is lost from here on, it is lost."""
        found = await self._backend.take(1, timeout, None, [], True)
        if not found:
            return None
        found[0].is_settled = True
        return found[0]

    @overload
    def process(
        self, timeout: None = None, *, lease: Period | None = None
    ) -> AbstractAsyncContextManager[AsyncDelivery]: ...
    @overload
    def process(
        self, timeout: Period, *, lease: Period | None = None
    ) -> AbstractAsyncContextManager[AsyncDelivery | None]: ...
    def process(
        self, timeout: Period | None = None, *, lease: Period | None = None
    ) -> AbstractAsyncContextManager[AsyncDelivery | None]:
        """The next message for an `async with` block: acked at its end, nacked when it raises.

        Waits for it, or gives None when none comes within `timeout` seconds. Released when the block is
        left because the program, a task or a generator ends: by KeyboardInterrupt, SystemExit,
        CancelledError or GeneratorExit. The lease is renewed as long as the block runs. A child that the
        block forks settles nothing by leaving it.
        """
        return self._processing(timeout, lease)

    @asynccontextmanager
    async def _processing(
        self, timeout: Period | None, lease: Period | None
    ) -> AsyncIterator[AsyncDelivery | None]:
        message: AsyncDelivery | None = None
        is_given = False
        tokens: Tokens = []
        process = getpid()
        try:
            found = await self._backend.take(1, timeout, lease, tokens)
            if found:
                message = found[0]
                await self._hold(message, lease)
            is_given = True
            yield message
        except BaseException as error:
            if process != getpid():
                # The message is its parent's, which has the same one in hand.
                raise
            if message is None:
                if not is_given:
                    await self._give_back(tokens, error)
                raise
            if is_stop(error) or not is_given:
                await self.finish_with([message])
                raise
            self._renewer.release(message)
            # What the handler raised is what the caller has to know.
            with suppress(LeaseExpired, Closing, Unreachable):
                if not message.is_settled:
                    await message.nack(reason=type(error).__name__, error=_text_of(error))
            raise
        if message is None or process != getpid():
            return
        try:
            self._renewer.release(message)
            if not message.is_settled:
                await message.ack()
        except BaseException as error:
            if is_stop(error):
                # Nobody knows whether it was acked: if not, it comes again, and no attempt counts.
                await self.finish_with([message])
            raise

    def stream(
        self, timeout: Period | None = None, *, lease: Period | None = None, prefetch: int = 1
    ) -> AsyncGenerator[AsyncDelivery, None]:
        """Message after message; each is acked when the next one is asked for.

        Ends when none comes for `timeout` seconds, by default never. With `prefetch`, so many are taken
        ahead, their leases renewed until it is their turn, and acks sent together, a moment later. What the
        loop did not get past is released. An error that leaves the loop looks like a `break` from in here:
        use `process` in the loop, or `nack`, for what may fail.
        """
        check_number("prefetch", prefetch, 1, _PREFETCH_MAX)
        if prefetch == 1:
            return self._one_by_one(timeout, lease)
        return AsyncStream(
            self, self._renewer, self._streams, self._clock, timeout, lease, prefetch
        ).messages()

    async def _one_by_one(
        self, timeout: Period | None, lease: Period | None
    ) -> AsyncGenerator[AsyncDelivery, None]:
        process = getpid()
        while True:
            message: AsyncDelivery | None = None
            tokens: Tokens = []
            try:
                found = await self._backend.take(1, timeout, lease, tokens)
                if not found:
                    return
                message = found[0]
                await self._hold(message, lease)
                yield message
                if process != getpid():
                    raise Closing(STREAM_OF_PARENT)
                self._renewer.release(message)
                if not message.is_settled:
                    await message.ack()
            except BaseException as error:
                if message is None:
                    await self._give_back(tokens, error)
                elif process == getpid():
                    await self.finish_with([message])
                raise

    async def _give_back(self, tokens: Tokens, error: BaseException) -> None:
        """Release what was on its way to a call that has failed."""
        # A coroutine that is closed may await nothing; what it has taken has a lease that ends.
        if tokens and not isinstance(error, GeneratorExit):
            # A broker that was not there is asked once more, and not for long.
            await finish(self._release_taken, tokens, 1 if is_stop(error) else 0)

    async def _release_taken(self, tokens: Tokens, retries: int) -> None:
        try:
            await self._backend.release_taken(tokens, retries)
        except QuiverError as error:
            # Nobody knows whether there was anything; what there was has leases that end.
            log_unreleased(error)

    async def finish_with(self, messages: Iterable[AsyncDelivery]) -> None:
        """Release what was not settled, and never fail: what cannot be given back has a lease that ends."""
        await finish(self._release_unsettled, [message for message in messages if not message.is_settled])

    async def _release_unsettled(self, messages: list[AsyncDelivery]) -> None:
        for message in messages:
            self._renewer.release(message)
        await self.release_quietly(messages)

    async def release_quietly(self, held: Sequence[AsyncDelivery | str]) -> None:
        """Release messages, and only log what keeps them from it."""
        if not held:
            return
        try:
            await self.release(held)
        except (LeaseExpired, Closing):
            # A lease that is lost needs no giving back.
            return
        except QuiverError as error:
            log_unreleased(error, len(held))

    async def _hold(self, message: AsyncDelivery, lease: Period | None) -> None:
        self._renewer.hold(self, message, await self.lease_s(message.topic, lease))

    async def lease_s(self, topic: str, lease: Period | None) -> float:
        """How many seconds a lease lasts, as given or as the topic is set."""
        if lease is not None:
            return seconds_of("lease", lease, lowest=0.001)
        return await self._backend.perform(GetLeaseSeconds(topic))

    # Settling.

    async def ack(self, held: AnyHeld) -> None:
        """Messages are done with.

        Those whose receipts still hold are settled in any case; then LeaseExpired tells of the others.
        """
        await self._settle(Settle("ack"), held)

    async def nack(
        self,
        held: AnyHeld,
        delay: Period | None = None,
        reason: str | None = None,
        *,
        error: str | None = None,
    ) -> None:
        """Messages failed and are tried again, after `delay` seconds or a growing wait."""
        await self._settle(Settle.nacked(delay, reason, error), held)

    async def release(self, held: AnyHeld) -> None:
        """Messages are given back as if they had not been handed out: at once, and no attempt counts."""
        await self._settle(Settle("release"), held)

    async def reject(self, held: AnyHeld, reason: str | None = None, *, error: str | None = None) -> None:
        """Messages can never succeed: they become dead letters at once."""
        await self._settle(Settle.rejected(reason, error), held)

    async def extend(self, held: AnyHeld, seconds: Period) -> None:
        """Leases last for so many seconds from now."""
        await self._settle(Settle.extended(seconds), held)

    async def _settle(self, settle: Settle, held: AnyHeld) -> None:
        claims = Claims(held, self._scope, self.group)
        if leases := claims.leases():
            settled = await self._backend.settle(settle, leases)
            claims.done(settled, is_final=settle.act != "extend")

    # The log.

    async def seek(
        self,
        to: Literal["earliest", "latest"] | None = None,
        *,
        offset: int | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        priority: Priority | None = None,
    ) -> None:
        """Let the group go on from elsewhere: "earliest", "latest", an offset, or a moment.

        An offset counts in one lane, by default that of normal priority. What lies before is done with,
        also what is in flight; what lies behind is pending again, also what is only archived by now.
        Raises OffsetOutOfRange, and StorageFailed where the archive cannot be reached.
        """
        self._scope.check_single("seek in")
        if priority is not None:
            check_priority(priority)
        moment = None if timestamp is None else moment_us("timestamp", timestamp)
        await self._backend.perform(Seek(SeekTarget(to, offset, moment, partition, priority)))

    async def read(
        self,
        partition: int = 0,
        start: int | None = None,
        limit: int = 100,
        *,
        priority: Priority = "normal",
        key: bytes | None = None,
        text: bytes | None = None,
    ) -> list[StoredMessage]:
        """Messages of one lane from an offset on, by default the earliest, for looking only.

        With `key` only those that have it, and with `text` those that have these bytes, as they are
        written, in their value, their key or a header. What is archived is read from there, as if the log
        had never lost it. Where offsets are gone in between, this ends before them, and raises
        OffsetOutOfRange when it begins with them.
        """
        self._scope.check_single("read")
        check_priority(priority)
        check_number("partition", partition, 0, PARTITIONS_MAX)
        check_number("limit", limit, 0, _READ_MAX)
        if start is not None:
            check_number("start", start, 0, OFFSET_MAX)
        _check_bytes("key", key)
        _check_bytes("text", text)
        return await self._backend.read(partition, start, limit, priority, Wanted(key, text))

    async def to_arrow(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        priority: Priority | None = None,
    ) -> "pa.Table":
        """Messages of the topic as a `pyarrow.Table`, with the columns that they have for Spark.

        All of them, or those of a partition, of a priority, and with offsets in [start, end), `limit` at
        most, in order of partition, priority and offset. Raises InvalidRequest without pyarrow, and
        OffsetOutOfRange for offsets that are gone.
        """
        check_arrow()
        wanted = TableRange(partition, start, end, limit, priority)
        self._scope.check_single("read")
        pages = wanted.pages(await self._backend.perform(CountPartitions()))
        try:
            request = next(pages)
            while True:
                request = pages.send(await self._page(request))
        except StopIteration as stop:
            return table_of(stop.value)

    async def _page(self, request: PageRequest) -> list[StoredMessage]:
        try:
            return await self._backend.read(*request, _EVERYTHING)
        except OffsetOutOfRange as error:
            if is_behind(error, request):
                return []
            raise

    async def to_pandas(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        priority: Priority | None = None,
    ) -> "pd.DataFrame":
        """The same as a `pandas.DataFrame`. Needs pandas."""
        table = await self.to_arrow(partition, start, end, limit=limit, priority=priority)
        return table.to_pandas()

    async def peek(self, limit: int = 1) -> list[StoredMessage]:
        """The next messages that nobody in the group has had, without taking them."""
        check_number("limit", limit, 0, _READ_MAX)
        self._scope.check_single("peek into")
        return await self._backend.perform(Peek(limit))

    # Looking after.

    async def stats(self) -> QueueStats:
        """How much there is for the group, and how far it has come."""
        return await self._backend.perform(GetQueueStats())

    async def deliveries(self, limit: int = 100, after: InFlight | None = None) -> list[InFlight]:
        """What is in flight, by topic, partition, priority and offset: who has what, and until when.

        At most `limit`; those behind `after`, which is the last one that you have.
        """
        check_number("limit", limit, 0, _READ_MAX)
        check_after(after)
        return await self._backend.perform(ListDeliveries(limit, after))

    async def dead_letters(self, limit: int | None = None) -> list[DeadLetter]:
        """The messages of this topic that were given up, by whichever group."""
        check_limit(limit)
        self._scope.check_single("ask for the dead letters of")
        return await self._backend.perform(ListDeadLetters(limit))

    async def dead_letter_reasons(self) -> list[DeadLetterReason]:
        """How many messages of this topic were given up for which reason, the most frequent first."""
        self._scope.check_single("ask for the dead letters of")
        return await self._backend.perform(CountReasons())

    async def redrive(
        self,
        filter: Filter | None = None,  # noqa: A002 - The contract's word.
        limit: int | None = None,
        ids: Collection[str] | None = None,
        edits: Mapping[str, Message] | None = None,
    ) -> int:
        """Send dead letters back to where they came from, and return how many.

        All of them, or those with these ids, and of them those that the filter wants. Each is at any time,
        also after a crash, in exactly one of the two topics. They come back as new messages at the end of
        their lane, so every group sees them. Where `edits` has a message for an id, that one's value, key
        and headers go back in place of what was given up; without `ids`, only those move.
        """
        check_limit(limit)
        check_filter(filter)
        if ids is not None:
            check_ids(ids)
        check_edits(edits)
        self._scope.check_single("ask for the dead letters of")
        chosen = list(edits) if edits is not None and ids is None else ids
        return await self._backend.perform(Redrive(filter, limit, chosen, edits or NO_EDITS))

    async def discard(
        self,
        filter: Filter | None = None,  # noqa: A002 - As in redrive.
        limit: int | None = None,
        ids: Collection[str] | None = None,
    ) -> int:
        """Take dead letters out for good, and return how many."""
        check_limit(limit)
        check_filter(filter)
        if ids is not None:
            check_ids(ids)
        self._scope.check_single("ask for the dead letters of")
        return await self._backend.perform(Discard(filter, limit, ids))

    async def scheduled(self, limit: int | None = None) -> list[Scheduled]:
        """The delayed messages that wait, the next one first."""
        check_limit(limit)
        self._scope.check_single("ask for the delayed messages of")
        return await self._backend.perform(ListScheduled(limit))

    async def timeline(self, until: Moment | None = None, bins: int = 60) -> Timeline:
        """How many delayed messages are due when, in equal spans from now on, by default up to the last.

        Cheap, however many wait: what is due in some hours is counted, what is due later estimated.
        """
        check_number("bins", bins, 1, BINS_MAX)
        end_us = None if until is None else moment_us("until", until)
        self._scope.check_single("ask for the delayed messages of")
        return await self._backend.perform(CountScheduled(end_us, bins))

    async def cancel(self, scheduled_id: str) -> bool:
        """Call a delayed message off. False when it is not waiting any more, or never was."""
        self._scope.check_single("cancel in")
        if not scheduled_id or not isinstance(scheduled_id, str):
            return False
        return await self._backend.perform(Cancel([scheduled_id])) > 0

    async def cancel_many(self, scheduled_ids: Collection[str]) -> int:
        """Call delayed messages off, and return how many of them were still waiting."""
        check_ids(scheduled_ids)
        self._scope.check_single("cancel in")
        return await self._backend.perform(Cancel(scheduled_ids))

    async def deliver_now(self, scheduled_id: str) -> bool:
        """Let a delayed message come before it is due. False when it is not waiting, or never was."""
        self._scope.check_single("deliver in")
        if not scheduled_id or not isinstance(scheduled_id, str):
            return False
        return await self._backend.perform(DeliverNow(scheduled_id))

    async def purge(self) -> int:
        """Take every message out of the topic for good, delayed ones included, and return how many.

        No group gets them any more; who has one in hand may still settle it. Dead letters stay.
        """
        self._scope.check_single("purge")
        return await self._backend.perform(Purge())

    async def pause(self) -> None:
        """Give the group nothing more of the topic until `resume`, also after a restart.

        Who waits goes on waiting, and what is in hand can be settled. Members in stream mode pause by
        themselves.
        """
        self._scope.check_single("pause a group of")
        await self._backend.perform(PauseGroup(True))

    async def resume(self) -> None:
        """Let a group go on that was paused."""
        self._scope.check_single("resume a group of")
        await self._backend.perform(PauseGroup(False))

    async def retry_now(self) -> int:
        """Let everything that failed and waits for its next attempt have it now. Returns how many."""
        self._scope.check_single("retry in")
        return await self._backend.perform(RetryNow())


def _text_of(error: BaseException) -> str:
    """What an exception says, even one that cannot say it."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as unspeakable:
        return f"{type(error).__name__}, which cannot be shown: {type(unspeakable).__name__}"


def _check_bytes(name: str, given: object) -> None:
    """Raise InvalidRequest for what somebody looks for and no message can have."""
    if given is not None and not isinstance(given, bytes):
        raise InvalidRequest(f"{name} is bytes, as messages have them, not a {type(given).__name__}")


def _listed(messages: object) -> list[bytes | Message]:
    """Messages that may come from anywhere, as a list. Raises InvalidRequest for what is not many."""
    if isinstance(messages, _ONE_ALONE) or not isinstance(messages, Iterable):
        raise InvalidRequest("put_many takes a list of messages: for a single one there is put")
    return list(messages)
