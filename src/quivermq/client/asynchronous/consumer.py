"""What `AsyncConnection.consumer` returns: as `RemoteConsumer`, with tasks in place of threads."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import Any, Self

from quivermq.client.asynchronous.condition import AsyncCondition
from quivermq.client.consuming.membership import PAUSE_S, Membership
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.consuming.reading import Tenure
from quivermq.client.core.call import RunFlow
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import Closing
from quivermq.group.assignment import TopicPartition
from quivermq.model.checks import Period, check_number, seconds_of
from quivermq.model.lanes import Priority
from quivermq.model.messages import StoredMessage


class AsyncConsumer:
    """Reads topics as a member of a group. `poll` it from one task; anything else from any of the loop."""

    def __init__(self, run: RunFlow, calls: TopicCalls, options: ConsumerOptions) -> None:
        self.topics = options.topics
        self.group = options.group
        self._run = run
        self._changed = AsyncCondition()
        self._closed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._membership = Membership(calls, options, self._changed, self._start_fetching)
        self._start(self._beat())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Messages.

    async def poll(self, timeout: Period = 1.0, max_messages: int | None = None) -> list[StoredMessage]:
        """The next messages, an empty list when none came within `timeout` seconds.

        As `RemoteConsumer.poll`. Here callbacks are called, and awaited when they are coroutines.
        """
        self._check_open()
        membership = self._membership
        count = membership.options.max_poll if max_messages is None else max_messages
        check_number("max_messages", count, 1, 1_000_000)
        wait_s = seconds_of("timeout", timeout, lowest=0)
        membership.finish()
        await self._run(membership.commit_if_due())
        end = membership.clock.monotonic() + wait_s
        while True:
            if not await self._run(membership.rebalance()):
                await self._pause(PAUSE_S)
            messages = membership.take(count)
            left = end - membership.clock.monotonic()
            if messages or left <= 0:
                return messages
            if not membership.is_to_sync:
                await self._changed.wait(left)
            self._check_open()

    async def __aiter__(self) -> AsyncGenerator[StoredMessage, None]:
        """Message after message, for ever; each is finished when the next one is asked for."""
        while True:
            for message in await self.poll(1.0, 1):
                yield message

    # Positions.

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it has now."""
        return self._membership.assignment

    def position(self, topic: str, partition: int, priority: Priority = "normal") -> int:
        """The next offset that `poll` returns of a lane. Raises InvalidRequest."""
        return self._membership.position(topic, partition, priority)

    def seek(self, topic: str, partition: int, offset: int, priority: Priority = "normal") -> None:
        """Go on from elsewhere in a lane; the next commit is of that place. Raises InvalidRequest."""
        self._membership.seek(topic, partition, offset, priority)

    async def lag(self) -> dict[TopicPartition, int]:
        """How many messages of each partition it has not returned yet."""
        found: dict[TopicPartition, int] = await self._run(self._membership.lag())
        return found

    async def commit(self) -> None:
        """Everything that was returned is finished: let the group go on behind it.

        Raises Fenced when a partition went to another member meanwhile, who gets those messages again.
        """
        self._check_open()
        self._membership.finish()
        await self._run(self._membership.commit())

    # Tasks.

    async def _beat(self) -> None:
        with suppress(Closing):
            while not await self._pause(self._membership.beat_s):
                await self._run(self._membership.beat())

    def _start_fetching(self, tenure: Tenure) -> None:
        self._start(self._fetch(tenure))

    async def _fetch(self, tenure: Tenure) -> None:
        """Read ahead in one partition until it is given up."""
        with suppress(Closing):
            while not self._closed.is_set() and self._membership.reads(tenure):
                if not self._membership.has_room(tenure.partition):
                    await self._changed.wait()
                elif not await self._run(self._membership.fetch(tenure.partition)):
                    await self._pause(PAUSE_S)

    async def _pause(self, seconds: float) -> bool:
        """Whether it was closed meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                return await self._closed.wait()
        except TimeoutError:
            return False

    # The end.

    async def close(self) -> None:
        """Commit what is finished, leave the group, and end. Closing twice is allowed."""
        await self.end(is_finished=True)

    async def end(self, *, is_finished: bool) -> None:
        """As `close`. Unless it `is_finished`, what was returned last is not committed, and comes again."""
        if self._closed.is_set():
            return
        if is_finished:
            self._membership.finish()
        with suppress(Closing):
            await self._run(self._membership.commit_quietly())
        self._closed.set()
        with suppress(Closing):
            await self._run(self._membership.leave())
        self._changed.notify_all()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closing(f"the consumer of group {self.group} was closed: make another one")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: object, *_: object) -> None:
        # A block that raised did not finish what it was last given: that is to be delivered again.
        await self.end(is_finished=error is None)

    def __repr__(self) -> str:
        return f"<AsyncConsumer of {', '.join(self.topics)}, group {self.group}>"
