"""What `AsyncConnection.producer` returns: `send` waits for room at most, and one task does the rest."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Self

from quivermq.client.asynchronous.condition import AsyncCondition
from quivermq.client.core.call import RunFlow
from quivermq.client.producing.batch import ProducerBatch
from quivermq.client.producing.options import ProducerOptions
from quivermq.client.producing.sending import OVERHEAD_BYTES, Sending
from quivermq.errors import Closing, QuiverError, Unavailable
from quivermq.model.checks import Period, seconds_of
from quivermq.model.lanes import Priority
from quivermq.model.messages import Put

logger = logging.getLogger(__name__)


class AsyncSent:
    """What `send` returns: where the message is, once that is known."""

    __slots__ = ("_batch", "_index", "_news")

    def __init__(self, batch: ProducerBatch, index: int, news: AsyncCondition) -> None:
        self._batch = batch
        self._index = index
        self._news = news

    def done(self) -> bool:
        """Whether it was stored, or given up."""
        return self._batch.is_done

    async def result(self, timeout: Period | None = None) -> Put:
        """Where it is. Raises what kept it from being stored, and Unavailable after `timeout` seconds."""
        batch = self._batch
        wait_s = None if timeout is None else seconds_of("timeout", timeout, lowest=0)
        if not await self._news.wait_for(lambda: batch.is_done, wait_s):
            raise Unavailable(f"the message is still on its way after {wait_s:g} seconds")
        return batch.place_of(self._index)

    async def exception(self, timeout: Period | None = None) -> QuiverError | None:
        """What kept it from being stored, or None."""
        try:
            await self.result(timeout)
        except QuiverError as error:
            return error
        return None


class AsyncProducer:
    """As `RemoteProducer`, for the tasks of one event loop. Close it, or use it in an `async with`."""

    def __init__(self, topic: str, run: RunFlow, options: ProducerOptions) -> None:
        self.topic = topic
        self._run = run
        self._is_silent = options.acks == "none"
        self._work = AsyncCondition()
        self._news = AsyncCondition()
        # One event loop is guard enough: nothing happens between two awaits.
        self._sending = Sending(topic, options, nullcontext())
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> Self:
        """Find out what the topic is like, and begin."""
        await self._run(self._sending.begin())
        self._task = asyncio.get_running_loop().create_task(self._work_off())
        return self

    # In.

    async def send(
        self,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        priority: Priority = "normal",
    ) -> AsyncSent | None:
        """Send a message soon. `await result()` says where it is; None when nobody waits for that.

        Raises as `RemoteProducer.send`. Returns at once unless the buffer is full.
        """
        sending = self._sending
        if type(value) is not bytes or len(value) > sending.message_bytes_max:
            value = sending.checked_value(value)
        if key is None and headers is None and partition is None and priority == "normal":
            await self._make_room(len(value) + OVERHEAD_BYTES)
            batch, index, is_new = sending.add_plain(value)
        else:
            message = sending.checked_rich(value, key, headers, priority)
            await self._make_room(message.size)
            batch, index, is_new = sending.add_rich(message, partition)
        if is_new:
            self._work.notify_all()
        return None if self._is_silent else AsyncSent(batch, index, self._news)

    async def _make_room(self, size: int) -> None:
        sending = self._sending
        while not sending.check_room(size):
            self._work.notify_all()
            await self._news.wait()

    # Out.

    async def flush(self, timeout: Period | None = None) -> None:
        """Return once everything sent so far is stored. Raises as `RemoteProducer.flush`."""
        wait_s = None if timeout is None else seconds_of("timeout", timeout, lowest=0)
        waiting = self._sending.unfinished()
        self._work.notify_all()
        if not await self._news.wait_for(lambda: all(batch.is_done for batch in waiting), wait_s):
            left = sum(len(batch.values) for batch in waiting if not batch.is_done)
            raise Unavailable(f"{left} messages are still on their way after {wait_s:g} seconds")
        failure, count = self._sending.take_failure()
        if failure is not None:
            logger.warning("%d messages for %s were not stored: %s", count, self.topic, failure)
            raise failure

    async def close(self, timeout: Period | None = None) -> None:
        """Send what is left and end. Raises as `flush`; nothing is dropped silently."""
        self._sending.is_closed = True
        self._news.notify_all()
        try:
            await self.flush(timeout)
        finally:
            self._work.notify_all()
            if timeout is None and self._task is not None:
                await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncProducer for {self.topic}, {self._sending.gathering.buffered_bytes} bytes buffered>"

    # The task.

    async def _work_off(self) -> None:
        sending = self._sending
        while True:
            batch, wait_s = sending.take_due()
            if batch is not None:
                try:
                    await self._run(sending.deliver(batch))
                except Closing as error:
                    sending.give_up(batch, error)
                self._news.notify_all()
            elif sending.is_closed:
                return
            else:
                await self._work.wait(wait_s)
