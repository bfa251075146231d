"""Where a delivery came from, in the place that a cursor has embedded."""

from collections.abc import Sequence

from quivermq.model.checks import Period
from quivermq.model.deliveries import Lease

# An offset and the token of its lease.
Claim = tuple[int, int]


class Place:
    """One partition of a topic as one group sees it. A shell that can settle by itself adds how."""

    __slots__ = ("group", "partition", "topic")

    def __init__(self, topic: str, partition: int, group: str) -> None:
        self.topic = topic
        self.partition = partition
        self.group = group

    def is_last_attempt(self, lease: Lease) -> bool:
        """Whether a delivery that fails becomes a dead letter: the broker said so."""
        return bool(lease.is_last)

    def ack_one(self, lane: int, offset: int, token: int) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")

    def nack(
        self,
        lane: int,
        claims: Sequence[Claim],
        delay: Period | None,
        reason: str | None,
        error: str | None,
    ) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")

    def release(self, lane: int, claims: Sequence[Claim]) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")

    def reject(self, lane: int, claims: Sequence[Claim], reason: str | None, error: str | None) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")

    def extend(self, lane: int, claims: Sequence[Claim], seconds: Period) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")
