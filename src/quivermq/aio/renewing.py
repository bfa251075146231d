"""The one task of a connection that does what is due: leases to renew, and acks of streams to send."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, TypeAlias

from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.queue.due import Periodic, Renewal, by_queue

if TYPE_CHECKING:
    from quivermq.aio.backend import AsyncBackend
    from quivermq.aio.queue import AsyncQueue

logger = logging.getLogger(__name__)

AsyncAct = Callable[[], Awaitable[None]]
Due: TypeAlias = "Renewal[AsyncQueue, AsyncDelivery] | AsyncAct"


class AsyncRenewer:
    """Extends leases after a third of their time, those of one queue together."""

    def __init__(self, backend: "AsyncBackend") -> None:
        self._clock = backend.clock
        self._periodic: Periodic[Due] = Periodic()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def hold(self, queue: "AsyncQueue", delivery: "AsyncDelivery", lease_s: float) -> None:
        """Keep the lease of a delivery until `release`."""
        self.renew(delivery, Renewal(queue, lease_s, lambda: [delivery]))

    def renew(self, name: Hashable, renewal: "Renewal[AsyncQueue, AsyncDelivery]") -> None:
        """Keep whatever it finds, until `release`."""
        self._add(name, renewal, renewal.period_s)

    def repeat(self, name: Hashable, act: AsyncAct, period_s: float) -> None:
        """Call it again and again, until `release`. It may raise nothing."""
        self._add(name, act, period_s)

    def _add(self, name: Hashable, item: Due, period_s: float) -> None:
        self._periodic.add(name, item, period_s, self._clock.monotonic())
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def release(self, name: Hashable) -> None:
        """Renew it, or call it, no more: a lease then runs out when it does."""
        self._periodic.remove(name)

    async def give_back(self) -> None:
        """Release every message that is held by itself: nobody can settle it any more."""
        for name, renewal in self._periodic.items():
            if isinstance(renewal, Renewal) and isinstance(name, AsyncDelivery):
                self.release(name)
                if not name.is_settled:
                    # By its receipt: whoever is at it has not settled it, and is told so.
                    await renewal.queue.release_quietly([name.receipt])

    async def close(self) -> None:
        """Renew nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            due = self._periodic.take_due(self._clock.monotonic())
            for renewal in by_queue(item for item in due if isinstance(item, Renewal)):
                await self._extend(renewal)
            for act in due:
                if not isinstance(act, Renewal):
                    await act()
            if not due:
                await self._wait()

    async def _wait(self) -> None:
        next_due = self._periodic.next_due
        left = None if next_due is None else max(0.0, next_due - self._clock.monotonic())
        try:
            async with asyncio.timeout(left):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _extend(self, renewal: "Renewal[AsyncQueue, AsyncDelivery]") -> None:
        held = renewal.find()
        try:
            await renewal.queue.extend([each for each in held if not each.is_settled], renewal.lease_s)
        except Exception as error:
            # The handlers learn of it when they settle their messages; the other leases are still renewed.
            logger.warning("could not renew the leases of %d messages: %s", len(held), error)
