"""A stream that takes messages ahead: a task fetches and acknowledges while the loop is at work."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from quivermq.aio.finishing import finish
from quivermq.aio.renewing import AsyncRenewer
from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.clock import Clock
from quivermq.errors import Closing, QuiverError
from quivermq.model.checks import Period
from quivermq.queue.due import Renewal
from quivermq.queue.window import ACK_S, Window, WindowBatch

if TYPE_CHECKING:
    from quivermq.aio.queue import AsyncQueue

logger = logging.getLogger(__name__)

AsyncStreams: TypeAlias = "WeakSet[AsyncStream]"


class AsyncStream:
    """Made by `AsyncQueue.stream`: as the blocking one, but that a task is what a thread is there."""

    def __init__(
        self,
        queue: "AsyncQueue",
        renewer: AsyncRenewer,
        streams: AsyncStreams,
        clock: Clock,
        timeout: Period | None,
        lease: Period | None,
        prefetch: int,
    ) -> None:
        self._queue = queue
        self._renewer = renewer
        self._clock = clock
        self._timeout = timeout
        self._lease = lease
        self._window: Window[AsyncDelivery] = Window(prefetch)
        # Acks go one after the other, so that whoever waits for this lock knows that none is on its way.
        self._acking = asyncio.Lock()
        self._leases_s: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_watched = False
        self._is_closed = False
        self._error: Exception | None = None
        streams.add(self)

    async def messages(self) -> AsyncGenerator[AsyncDelivery, None]:
        """One message after the other. Whatever ends it, nothing is held when it has ended."""
        is_whole, monotonic = False, self._clock.monotonic
        try:
            while (batch := await self._next()) is not None:
                begun = monotonic()
                for message in batch.messages:
                    yield message
                    batch.passed += 1
                    if self._is_closed:
                        raise Closing("the queue was closed: what the stream held is released")
                self._window.took(monotonic() - begun)
            is_whole = True
        finally:
            await finish(self._end, is_whole=is_whole)
        self._check()

    # The loop.

    async def _next(self) -> WindowBatch[AsyncDelivery] | None:
        batch = self._window.begin()
        if batch is None and self._task is not None:
            await self._end_of_task()
            batch = self._window.begin()
        self._check()
        return await self._waited_for() if batch is None else await self._begun(batch)

    async def _waited_for(self) -> WindowBatch[AsyncDelivery] | None:
        """What comes first. Nothing is left to acknowledge meanwhile."""
        self._renewer.release(self)
        self._is_watched = False
        await self.ack_passed()
        self._check()
        part = self._window.part
        self._window.came(await self._queue.get_many(part, self._timeout, lease=self._lease), part)
        batch = self._window.begin()
        return None if batch is None else await self._begun(batch)

    async def _begun(self, batch: WindowBatch[AsyncDelivery]) -> WindowBatch[AsyncDelivery]:
        """Acknowledge and fetch while the loop is busy."""
        await self._watch(batch)
        await self._end_of_task()
        if wanted := self._window.wanted():
            self._task = asyncio.get_running_loop().create_task(self._work(wanted))
            # A loop that awaits nothing would keep it from being sent.
            await asyncio.sleep(0)
        return batch

    async def _end_of_task(self) -> None:
        # Not `await task`: when this is cancelled, what the task brings must not be lost.
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task = None

    def _check(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # Others.

    async def _work(self, wanted: int) -> None:
        """Acknowledge and fetch, and never wait for messages: then it would be hard to stop."""
        await self.ack_passed()
        try:
            self._window.came(await self._queue.get_many(wanted, 0, lease=self._lease), wanted)
        except Exception as error:
            self._error = self._error or error

    async def _watch(self, batch: WindowBatch[AsyncDelivery]) -> None:
        """Have leases renewed and acks sent while the loop is busy."""
        for topic in {message.topic for message in batch.messages} - self._leases_s.keys():
            lease_s = await self._queue.lease_s(topic, self._lease)
            self._leases_s[topic] = lease_s
            self._renewer.renew((self, topic), Renewal(self._queue, lease_s, self._held_of(topic)))
        if not self._is_watched:
            self._is_watched = True
            self._renewer.repeat(self, self.ack_passed, min(ACK_S, min(self._leases_s.values()) / 3))

    def _held_of(self, topic: str) -> Callable[[], list[AsyncDelivery]]:
        return lambda: [message for message in self._window.rest() if message.topic == topic]

    async def ack_passed(self) -> None:
        """Acknowledge what the loop got past. What goes wrong, the loop hears.

        Whoever waits for it may be cancelled, but not the ack: those messages are finished.
        """
        await finish(self._ack_passed)

    async def _ack_passed(self) -> None:
        async with self._acking:
            messages, passed = self._window.passed()
            try:
                if messages:
                    await self._queue.ack(messages)
            except Exception as error:
                self._error = self._error or error
            self._window.acked(passed)

    # The end.

    async def close(self) -> None:
        """End it from outside, because the connection is closed."""
        self._is_closed = True
        await self._end(is_whole=False, is_loop=False)

    async def _end(self, *, is_whole: bool, is_loop: bool = True) -> None:
        """Acknowledge what was passed, and give back what was not."""
        for name in (self, *((self, topic) for topic in self._leases_s)):
            self._renewer.release(name)
        await self._end_of_task()
        await self.ack_passed()
        rest = self._window.rest()
        # By their receipts unless the loop is over: it has not settled what it is at, and is told so.
        await self._queue.release_quietly(rest if is_loop else [message.receipt for message in rest])
        is_heard = is_whole or self._error is None or isinstance(self._error, Closing)
        if not is_heard and isinstance(self._error, QuiverError):
            # There is another error already, or nobody to hear of it.
            logger.warning("could not acknowledge messages of %s: %s", self._queue.topic, self._error)
