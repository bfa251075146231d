"""The one task of a connection that renews leases while handlers are at work."""

import asyncio
import logging
from typing import TYPE_CHECKING

from quivermq.client.core.holding import Holding
from quivermq.clock import Clock
from quivermq.errors import QuiverError

if TYPE_CHECKING:
    from quivermq.client.asynchronous.delivery import AsyncDelivery
    from quivermq.client.asynchronous.queue import AsyncQueue

logger = logging.getLogger(__name__)


class AsyncRenewer:
    """Extends leases after a third of their time, those of one queue together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._holding: Holding[tuple[AsyncQueue, AsyncDelivery]] = Holding()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def hold(self, queue: "AsyncQueue", delivery: "AsyncDelivery", lease_s: float) -> None:
        """Keep the lease of a delivery until `release`."""
        self._holding.hold(id(delivery), (queue, delivery), lease_s, self._clock.monotonic())
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def release(self, delivery: "AsyncDelivery") -> None:
        """Let the lease run out when it does."""
        self._holding.release(id(delivery))

    async def close(self) -> None:
        """Renew nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            due = self._holding.take_due(self._clock.monotonic())
            for lease_s, held in due.items():
                for queue in {queue for queue, _ in held}:
                    await self._extend(queue, [d for other, d in held if other is queue], lease_s)
            if not due:
                await self._wait()

    async def _wait(self) -> None:
        next_due = self._holding.next_due
        left = None if next_due is None else max(0.0, next_due - self._clock.monotonic())
        try:
            async with asyncio.timeout(left):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _extend(self, queue: "AsyncQueue", deliveries: list["AsyncDelivery"], lease_s: float) -> None:
        try:
            await queue.extend([delivery for delivery in deliveries if not delivery.is_settled], lease_s)
        except QuiverError as error:
            # The handlers learn of it when they settle their messages.
            logger.warning("could not renew the leases of %d messages: %s", len(deliveries), error)
