# Made by tools/asynchronous.py from backend.py: change that, and run `make asynchronous`.

"""What a queue is made of, whoever keeps it: what `AsyncConnection` and `AsyncQueue` ask for.

The engine of a data directory is one backend, the HTTP client of a broker another. Everything users call is
written once, in `quivermq.queue`, over these. `tools/asynchronous.py` makes the asynchronous protocols, in
`quivermq.aio.backend`, from these.

Messages go in and out by methods. All else that can be asked of a queue is an `Operation`, a value of
`quivermq.model.operations`, which says what it promises and answers; `perform` carries it out.

What holds for every call, and for every operation that is performed:

- The caller, `AsyncQueue` or `AsyncConnection`, checks names, numbers, priorities and texts, and refuses a
  pattern where one topic is meant. The backend checks the rest: all of a put but its durability, frames,
  settings, `timeout`, `lease`, what is adopted, and whether the topic has that partition. It raises
  InvalidRequest.
- It raises errors of `quivermq.errors` only: TopicNotFound for a topic that is not there, unless its
  promise says otherwise, and Closing once it is closed.
- Any thread may call at any time; for asyncio, the tasks of one event loop. A signal handler or the garbage
  collector may call in the middle of another call of the same thread: what takes a lock is marked with
  `quivermq.reentry.entered`, which refuses the second call with Reentered and lets `close` wait its turn.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from quivermq.client.asynchronous.consumer import AsyncConsumer
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.producer import AsyncProducer
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.producing.options import ProducerOptions
from quivermq.clock import Clock
from quivermq.frame import Wanted
from quivermq.model.checks import Moment, Period
from quivermq.model.deliveries import Held
from quivermq.model.lanes import Priority
from quivermq.model.messages import Message, Put, StoredMessage
from quivermq.model.operations import Operation, QueueOperation, Settle, Settled, Tokens
from quivermq.settings import Durability

T = TypeVar("T")


class AsyncQueueBackend(Protocol):
    """A topic, or all topics of a pattern, as one group sees it.

    Neither the topic nor the group has to be there: puts make the topic, `take` and `Seek` the group.
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
        `QueueSettler` serves any backend, because it calls `settle` and believes `Lease.is_last`.
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

    async def perform(self, operation: QueueOperation[T], /) -> T:
        """Carry out one of the operations on a topic and a group, and return what it answers."""
        ...


class AsyncBackend(Protocol):
    """A whole queue. What holds for all calls is said at the top of `quivermq.backend`."""

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

    async def producer(self, topic: str, options: ProducerOptions, /) -> AsyncProducer:
        """A producer that sends in the background. Only a broker has one; others raise InvalidRequest."""
        ...

    def consumer(self, options: ConsumerOptions, /) -> AsyncConsumer:
        """A member of a group in stream mode. Only a broker has one; others raise InvalidRequest."""
        ...

    async def perform(self, operation: Operation[T], /) -> T:
        """Carry out one of the operations on the whole queue, and return what it answers."""
        ...

    def check_open(self) -> None:
        """Raise Closing once it was closed or interrupted."""
        ...

    async def close(self) -> None:
        """Keep what was put, as durable as it can be, end every call that waits with Closing, and let go.

        Leases stay as they are. Closing twice is allowed. Raises DiskFull when it has to be called again.
        """
        ...
