# Made by tools/asynchronous.py from backend.py: change that, and run `make asynchronous`.

"""What a queue is made of, whoever keeps it: the operations behind `AsyncConnection` and `AsyncQueue`.

The engine of a data directory is one backend, the HTTP client of a broker another. Everything users call is
written once, in `quivermq.queue`, over these. `tools/asynchronous.py` makes the asynchronous protocols, in
`quivermq.aio.backend`, from these.

What holds for every operation:

- The caller, `AsyncQueue` or `AsyncConnection`, checks names, numbers, priorities and texts, and refuses a
  pattern where one topic is meant. The backend checks the rest: all of a put but its durability, frames,
  settings, `timeout`, `lease`, `adopt`, and whether the topic has that partition. It raises InvalidRequest.
- It raises errors of `quivermq.errors` only: TopicNotFound for a topic that is not there, unless the
  operation says otherwise, and Closing once it is closed.
- Any thread may call at any time; for asyncio, the tasks of one event loop. A signal handler or the garbage
  collector may call in the middle of another call of the same thread: what takes a lock is marked with
  `quivermq.reentry.entered`, which refuses the second call with Reentered and lets `close` wait its turn.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from quivermq.client.asynchronous.consumer import AsyncConsumer
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.producer import AsyncProducer
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.producing.options import ProducerOptions
from quivermq.clock import Clock
from quivermq.disk import Buffer
from quivermq.frame import Wanted
from quivermq.log import Replaced, Report
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.checks import Moment, Period
from quivermq.model.dead_letters import DeadLetter, DeadLetterReason, Edits, Filter
from quivermq.model.deliveries import Held, InFlight
from quivermq.model.lanes import Priority
from quivermq.model.messages import Message, ProducerState, Put, Scheduled, StoredMessage, Timeline
from quivermq.model.operations import SeekTarget, Settle, Settled, Tokens
from quivermq.model.stats import Compacted, EngineStats, QueueStats, TopicInfo
from quivermq.settings import Durability


class AsyncQueueBackend(Protocol):
    """A topic, or all topics of a pattern, as one group sees it.

    Neither the topic nor the group has to be there: puts make the topic, `take` and `seek` the group.
    """

    async def put(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        priority: Priority,
        ttl: Period | None,
        delay: Period | None,
        deliver_at: Moment | None,
        dedup_id: str | None,
        timestamp: Moment | None,
        partition: int | None,
        dedup_window: Period | None,
        durability: Durability | None,
        /,
    ) -> Put:
        """Store a message, and return once it is as durable as asked, by default as the topic is set.

        Raises InvalidName for a pattern; InvalidRequest, Overloaded, DiskRefused: then nothing was stored.
        With a `dedup_id` that is known within its window, returns the first put, with `duplicate`.
        """
        ...

    async def put_many(
        self, messages: list[bytes | Message], durability: Durability | None, /
    ) -> Sequence[Put]:
        """Store messages, and return their puts in the same order. Raises what `put` raises.

        All are checked before the first is stored; those of one lane are stored together or not at all.
        """
        ...

    async def put_frame(
        self, frame: bytes, partition: int | None, priority: Priority, durability: Durability | None, /
    ) -> Put:
        """Append a frame whole, once it is checked in full; the put is that of its first message.

        One that its producer sent before is answered as it was then, with `duplicate`. Raises InvalidName
        for a pattern, InvalidFrame, and Conflict for an old epoch or a sequence out of order.
        """
        ...

    async def sync(self) -> None:
        """Return once everything that was put into the topic survives power loss."""
        ...

    async def take(
        self, count: int, timeout: Period | None, lease: Period | None, tokens: Tokens, pop: bool = False, /
    ) -> list[AsyncDelivery]:
        """Lease up to `count` messages: what is there, or, when nothing is, what comes first.

        Waits for `timeout` seconds, None for ever; [] when nothing came. A topic that is not there has no
        messages, and may be made meanwhile. `lease` is in seconds, None as the topic is set. With `pop` the
        messages are acked at once.

        Each lease has a token, a random number of 63 bits. `take` appends it to `tokens` before it leases
        anything with it: when the call is ended by whatever exception, the caller has the token and calls
        `release_taken`. A call that waits in parts may use several. Each delivery has a `Settler`: a
        `RemoteSettler` serves any backend, because it calls `settle` and believes `Lease.is_last`.
        """
        ...

    async def release_taken(self, tokens: Tokens, retries: int = 0, /) -> None:
        """Release every message that was leased with these tokens, at once; no attempt counts.

        Where a `take` may still be on its way, as over a network, it leases nothing with them any more.
        Tokens that nobody knows are passed over. What fails for now is tried again up to `retries` times.
        """
        ...

    async def settle(self, settle: Settle, held: Sequence[Held], /) -> Settled:
        """Ack, nack, release, reject or extend messages of this queue, by lease.

        A lease that is over, or another token than its own, settles nothing and raises nothing: its
        receipts are `late` in the answer. The others are settled in any case; `failure` is the first error
        that kept some from it, and their receipts are `late`, too. A nack of the last attempt, and a
        reject, make dead letters. Raises Unavailable when it could ask for nothing.
        """
        ...

    async def lease_s(self, topic: str, /) -> float:
        """How many seconds a lease of that topic lasts when `take` is given none."""
        ...

    async def partitions(self) -> int:
        """How many the topic has. Raises TopicNotFound."""
        ...

    async def seek(self, target: SeekTarget, /) -> None:
        """Let the group go on from elsewhere. Raises InvalidRequest, OffsetOutOfRange."""
        ...

    async def read(
        self,
        partition: int,
        start: int | None,
        limit: int,
        priority: Priority,
        wanted: Wanted,
        /,
    ) -> list[StoredMessage]:
        """Up to `limit` messages of one lane from an offset on, None for the earliest, that are `wanted`.

        Ends before offsets that are gone. Raises OffsetOutOfRange when it would begin with them, or behind
        the end, and InvalidRequest for a partition that the topic does not have.
        """
        ...

    async def peek(self, limit: int, /) -> list[StoredMessage]:
        """The next messages that nobody in the group has had. Leases nothing, and makes no group."""
        ...

    async def stats(self) -> QueueStats:
        """How much there is for the group; of a topic that is not there, nothing."""
        ...

    async def deliveries(self, limit: int, after: InFlight | None, /) -> list[InFlight]:
        """What is in flight, behind `after`, by topic, partition, lane and offset."""
        ...

    async def dead_letters(self, limit: int | None, /) -> list[DeadLetter]:
        """The dead letters of the topic, of all groups, by partition, lane and offset; [] without any."""
        ...

    async def dead_letter_reasons(self) -> list[DeadLetterReason]:
        """How many there are for each reason, the most frequent first."""
        ...

    async def redrive(
        self,
        wanted: Filter | None,
        limit: int | None,
        ids: Collection[str] | None,
        edits: Edits,
        /,
    ) -> int:
        """Send dead letters back, each exactly once, and return how many.

        Those with these `ids` (None: all) of which `wanted` (None: all) is true, `limit` at most.
        """
        ...

    async def discard(
        self, wanted: Filter | None, limit: int | None, ids: Collection[str] | None, /
    ) -> int:
        """Take dead letters out for good, chosen as in `redrive`, and return how many."""
        ...

    async def scheduled(self, limit: int | None, /) -> list[Scheduled]:
        """The delayed messages that wait, the next one first; [] when there is no topic."""
        ...

    async def timeline(self, until_us: int | None, bins: int, /) -> Timeline:
        """How many delayed messages are due in each of `bins` equal spans; 0 without a topic."""
        ...

    async def cancel(self, scheduled_ids: Collection[str], /) -> int:
        """Take delayed messages out, and return how many of these were still waiting."""
        ...

    async def deliver_now(self, scheduled_id: str, /) -> bool:
        """Put a delayed message into its lane now. False when it does not wait."""
        ...

    async def purge(self) -> int:
        """Take every message out for good, delayed ones too, and return how many. Dead letters stay."""
        ...

    async def pause(self, is_paused: bool, /) -> None:
        """Let `take` find nothing for the group until this is called with False. Raises GroupNotFound."""
        ...

    async def retry_now(self) -> int:
        """Let what waits for its next attempt be due, and return how many. Raises GroupNotFound."""
        ...


class AsyncBackend(Protocol):
    """A whole queue. What holds for all operations is said at the top of `quivermq.backend`."""

    @property
    def name(self) -> str:
        """Its directory or its address, for people."""
        ...

    @property
    def clock(self) -> Clock:
        """The time by which leases are renewed and waits end. The time of leases is the backend's own."""
        ...

    def queue(self, topic: str, group: str, /) -> AsyncQueueBackend:
        """A topic or a pattern as a group sees it. Makes nothing, and does not ask whether it is there."""
        ...

    async def create_topic(self, name: str, exist_ok: bool, settings: Mapping[str, Any], /) -> None:
        """Create a topic with these settings. Raises TopicExists, InvalidSettings, LimitReached."""
        ...

    async def alter_topic(self, name: str, settings: Mapping[str, Any], /) -> None:
        """Change these settings, for whoever uses the topic now as well. Raises InvalidSettings."""
        ...

    async def delete_topic(self, name: str, /) -> None:
        """Delete a topic with its groups. No receipt of it holds any more; its dead letters stay."""
        ...

    async def topics(self) -> list[str]:
        """The names of all topics, sorted, dead-letter topics included."""
        ...

    async def topic(self, name: str, /) -> TopicInfo:
        """The settings of a topic."""
        ...

    async def groups(self, topic: str, /) -> list[str]:
        """The groups of a topic, sorted."""
        ...

    async def delete_group(self, topic: str, group: str, /) -> bool:
        """Forget a group; False when there is none."""
        ...

    async def begin_producer(self, topic: str, producer_id: int, /) -> ProducerState:
        """Give a producer its next epoch, durably; frames of earlier ones are refused. Makes the topic."""
        ...

    async def adopt(
        self,
        topic: str,
        group: str,
        progress: Progress,
        partition: int,
        priority: Priority,
        expected: Progress | None,
        /,
    ) -> bool:
        """Let a group go on where another queue was; False when it is elsewhere already."""
        ...

    async def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId], /) -> int:
        """Remember deduplication ids of another queue, and return how many of them still hold."""
        ...

    async def adopt_dead_letters(
        self, topic: str, frame: Buffer, partition: int, priority: Priority, /
    ) -> Put:
        """Append a frame to the dead letters of a topic, at `fsync`. Raises InvalidFrame."""
        ...

    async def replace_segment(
        self,
        topic: str,
        partition: int,
        base_offset: int,
        frames: Buffer,
        expected: str,
        priority: Priority,
        /,
    ) -> Replaced:
        """Put other frames in the place of a sealed segment: see `AsyncConnection.replace_segment`.

        A backend that has no segments raises NotFound.
        """
        ...

    async def producer(self, topic: str, options: ProducerOptions, /) -> AsyncProducer:
        """A producer that sends in the background. Only a broker has one; others raise InvalidRequest."""
        ...

    def consumer(self, options: ConsumerOptions, /) -> AsyncConsumer:
        """A member of a group in stream mode. Only a broker has one; others raise InvalidRequest."""
        ...

    async def sync(self) -> None:
        """Return once everything that was put into any topic survives power loss."""
        ...

    async def stats(self) -> EngineStats:
        """What there is in every topic, how far each group is, and what is wrong."""
        ...

    async def compact(self, archived: bool, /) -> Compacted:
        """Remove now what the settings no longer keep; with `archived` also what the archive has."""
        ...

    async def use_archive(self, directory: str | None, /) -> None:
        """Name the archive, or None for none. Raises NotFound when there is no archive."""
        ...

    async def verify(self) -> Report:
        """Check all that is stored, while the queue is in use. Damage is reported, not raised."""
        ...

    def check_open(self) -> None:
        """Raise Closing once it was closed or interrupted."""
        ...

    async def close(self) -> None:
        """Keep what was put, as durable as it can be, end every call that waits with Closing, and let go.

        Leases stay as they are. Closing twice is allowed. Raises DiskFull when it has to be called again.
        """
        ...
