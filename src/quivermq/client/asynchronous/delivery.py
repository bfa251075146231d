"""A message in the hands of an asynchronous consumer."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quivermq.errors import InvalidRequest
from quivermq.model.checks import Period
from quivermq.model.deliveries import Delivery, Held, LeasedMessage
from quivermq.model.operations import Settle, Settled

AsyncSettleCall = Callable[[Settle, Sequence[Held]], Awaitable[Settled]]


class AsyncDelivery(LeasedMessage):
    """As `quivermq.Delivery`, but that settling it has to be awaited."""

    __slots__ = ("_settle_call",)

    def __init__(self, held: Delivery, settle: AsyncSettleCall) -> None:
        super().__init__(held._record, held._lease, held._settler, held._lane)
        self._settle_call = settle

    @property
    def held(self) -> Delivery:
        """The same as a delivery that can be pickled."""
        return Delivery(self._record, self._lease, self._settler, self._lane)

    async def ack(self) -> None:
        """The message is done with. Raises LeaseExpired when it no longer was this consumer's."""
        await self._settle(Settle("ack"))

    async def nack(
        self, delay: Period | None = None, reason: str | None = None, *, error: str | None = None
    ) -> None:
        """It failed: try again after `delay` seconds, or after a growing wait when none is given.

        After the last attempt it becomes a dead letter. Raises LeaseExpired.
        """
        await self._settle(Settle.nacked(delay, reason, error))

    async def release(self) -> None:
        """Give it back as if it had not been handed out: at once, and the attempt does not count.

        For whoever stops, or cannot begin: what failed is a `nack`. Raises LeaseExpired.
        """
        await self._settle(Settle("release"))

    async def reject(self, reason: str | None = None, *, error: str | None = None) -> None:
        """It can never succeed: make it a dead letter at once. Raises LeaseExpired."""
        await self._settle(Settle.rejected(reason, error))

    async def extend(self, seconds: Period) -> None:
        """Keep the lease for so many seconds from now. Raises LeaseExpired."""
        await self._settle(Settle.extended(seconds))

    async def _settle(self, settle: Settle) -> None:
        held = Held(self.topic, self.partition, self._lane, self._lease.token, [self.offset])
        (await self._settle_call(settle, [held])).check()
        if settle.act != "extend":
            self.is_settled = True

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidRequest("an asynchronous delivery is not pickled: pickle its `held`, or its receipt")
