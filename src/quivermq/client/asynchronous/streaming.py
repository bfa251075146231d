"""A stream that takes messages ahead: a task fetches and acknowledges while the loop is at work."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.client.asynchronous.giving_back import release_quietly
from quivermq.client.core.renewing import Renewal
from quivermq.client.core.window import TELL_S, Batch, Window
from quivermq.errors import Closing, QuiverError
from quivermq.model.checks import Period
from quivermq.model.names import is_pattern

if TYPE_CHECKING:
    from quivermq.client.asynchronous.connection import AsyncConnection
    from quivermq.client.asynchronous.queue import AsyncQueue

logger = logging.getLogger(__name__)


class AsyncStream:
    """Made by `AsyncQueue.stream`: as the blocking one, but that a task is what a thread is there."""

    def __init__(
        self,
        connection: "AsyncConnection",
        queue: "AsyncQueue",
        timeout: Period | None,
        lease: Period | None,
        prefetch: int,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._timeout = timeout
        self._lease = lease
        self._window: Window[AsyncDelivery] = Window(prefetch)
        # Acks go one after the other, so that whoever waits for this lock knows that none is on its way.
        self._telling = asyncio.Lock()
        self._is_mixed = is_pattern(queue.topic)
        self._leases_s: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._tellings: set[asyncio.Task[None]] = set()
        self._is_watched = False
        self._is_closed = False
        self._error: Exception | None = None

    async def messages(self) -> AsyncGenerator[AsyncDelivery, None]:
        """One message after the other. Whatever ends it, nothing is held when it has ended."""
        is_whole, monotonic = False, self._connection.source.clock.monotonic
        try:
            while (batch := await self._next()) is not None:
                begun = monotonic()
                for message in batch.messages:
                    yield message
                    batch.passed += 1
                    if self._is_closed:
                        raise Closing("the connection was closed: what the stream held is released")
                self._window.took(monotonic() - begun)
            is_whole = True
        finally:
            await self._connection.finish(self._end(is_whole=is_whole))
        self._check()

    # The loop.

    async def _next(self) -> Batch[AsyncDelivery] | None:
        batch = self._window.begin()
        if batch is None and self._task is not None:
            await self._end_of_task()
            batch = self._window.begin()
        self._check()
        return await self._waited_for() if batch is None else await self._begun(batch)

    async def _waited_for(self) -> Batch[AsyncDelivery] | None:
        """What comes first. Nothing is left unsaid meanwhile."""
        self._connection.renewer.release(self)
        self._is_watched = False
        await self.tell()
        self._check()
        part = self._window.part
        self._take_in(await self._queue.get_many(part, self._timeout, lease=self._lease), part)
        batch = self._window.begin()
        return None if batch is None else await self._begun(batch)

    async def _begun(self, batch: Batch[AsyncDelivery]) -> Batch[AsyncDelivery]:
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

    def _take_in(self, messages: list[AsyncDelivery], wanted: int) -> None:
        self._window.came(Batch(len(messages), lambda: messages), wanted)

    # Others.

    async def _work(self, wanted: int) -> None:
        """Acknowledge and fetch, and never wait for messages: then it would be hard to stop."""
        await self.tell()
        try:
            self._take_in(await self._queue.get_many(wanted, 0, lease=self._lease), wanted)
        except Exception as error:
            self._error = self._error or error

    async def _watch(self, batch: Batch[AsyncDelivery]) -> None:
        """Have leases renewed and acks sent while the loop is busy."""
        renewer = self._connection.renewer
        topics = {message.topic for message in batch.messages} if self._is_mixed else {self._queue.topic}
        for topic in topics - self._leases_s.keys():
            lease_s = await self._queue.lease_s(topic, self._lease)
            self._leases_s[topic] = lease_s
            renewer.renew((self, topic), Renewal(self._queue, lease_s, self._held_of(topic)))
        if not self._is_watched:
            self._is_watched = True
            renewer.repeat(self, self.tell, min(TELL_S, min(self._leases_s.values()) / 3))

    def _held_of(self, topic: str) -> Callable[[], list[AsyncDelivery]]:
        return lambda: [message for message in self._window.rest() if message.topic == topic]

    async def tell(self) -> None:
        """Acknowledge what the loop got past. What goes wrong, the loop hears.

        Whoever waits for it may be cancelled, but not the ack: those messages are finished.
        """
        task = asyncio.get_running_loop().create_task(self._tell())
        self._tellings.add(task)
        task.add_done_callback(self._tellings.discard)
        await asyncio.shield(task)

    async def _tell(self) -> None:
        async with self._telling:
            passed, told = self._window.passed()
            try:
                if passed:
                    await self._queue.ack(passed)
            except Exception as error:
                self._error = self._error or error
            self._window.told(told)

    # The end.

    async def close(self) -> None:
        """End it from outside, because the connection is closed."""
        self._is_closed = True
        await self._end(is_whole=False, is_loop=False)

    async def _end(self, *, is_whole: bool, is_loop: bool = True) -> None:
        """Acknowledge what was passed, and give back what was not."""
        for name in (self, *((self, topic) for topic in self._leases_s)):
            self._connection.renewer.release(name)
        await self._end_of_task()
        await self.tell()
        if rest := self._window.rest():
            # Not as settled while the loop goes on: it has not settled what it is at, and is told so.
            held = rest if is_loop else [message.receipt for message in rest]
            await release_quietly(self._queue, held)
        is_told = is_whole or self._error is None or isinstance(self._error, Closing)
        if not is_told and isinstance(self._error, QuiverError):
            # There is another error already, or nobody to hear of it.
            logger.warning("could not acknowledge messages of %s: %s", self._queue.topic, self._error)
