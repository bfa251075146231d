"""A message in the hands of an asynchronous consumer."""

from typing import TYPE_CHECKING, Any

from quivermq.errors import InvalidRequest
from quivermq.model.checks import Period
from quivermq.model.deliveries import Delivery

if TYPE_CHECKING:
    from quivermq.client.asynchronous.queue import AsyncQueue


class AsyncDelivery:
    """As `quivermq.Delivery`, but that settling it has to be awaited."""

    __slots__ = ("_queue", "held")

    def __init__(self, held: Delivery, queue: "AsyncQueue") -> None:
        self.held = held
        self._queue = queue

    @property
    def value(self) -> bytes:
        return self.held.value

    @property
    def key(self) -> bytes | None:
        return self.held.key

    @property
    def headers(self) -> dict[str, bytes]:
        return self.held.headers

    @property
    def topic(self) -> str:
        return self.held.topic

    @property
    def partition(self) -> int:
        return self.held.partition

    @property
    def priority(self) -> str:
        return self.held.priority

    @property
    def offset(self) -> int:
        """The message's number in its lane, that is among those of its partition and priority."""
        return self.held.offset

    @property
    def timestamp(self) -> int:
        """When it was put, in unix microseconds, unless the producer said otherwise."""
        return self.held.timestamp

    @property
    def expires_at(self) -> int | None:
        return self.held.expires_at

    @property
    def dedup_id(self) -> str | None:
        return self.held.dedup_id

    @property
    def scheduled_id(self) -> str | None:
        """The id under which it waited, as `put` told it, if it was delayed."""
        return self.held.scheduled_id

    @property
    def attempt(self) -> int:
        """Which delivery of this message to this group it is; 1 is the first."""
        return self.held.attempt

    @property
    def is_last_attempt(self) -> bool:
        """Whether it becomes a dead letter when this attempt fails."""
        return self.held.is_last_attempt

    @property
    def receipt(self) -> str:
        """What `ack` and the others take in place of the delivery itself, also after a restart."""
        return self.held.receipt

    @property
    def is_settled(self) -> bool:
        return self.held.is_settled

    async def ack(self) -> None:
        """The message is done with. Raises LeaseExpired when it no longer was this consumer's."""
        await self._queue.ack(self)

    async def nack(
        self, delay: Period | None = None, reason: str | None = None, *, error: str | None = None
    ) -> None:
        """It failed: try again after `delay` seconds, or after a growing wait when none is given."""
        await self._queue.nack(self, delay, reason, error=error)

    async def release(self) -> None:
        """Give it back as if it had not been handed out: at once, and the attempt does not count."""
        await self._queue.release(self)

    async def reject(self, reason: str | None = None, *, error: str | None = None) -> None:
        """It can never succeed: make it a dead letter at once. Raises LeaseExpired."""
        await self._queue.reject(self, reason, error=error)

    async def extend(self, seconds: Period) -> None:
        """Keep the lease for so many seconds from now. Raises LeaseExpired."""
        await self._queue.extend(self, seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidRequest("an asynchronous delivery is not pickled: pickle its `held`, or its receipt")

    def __repr__(self) -> str:
        return f"<Async{repr(self.held)[1:]}"
