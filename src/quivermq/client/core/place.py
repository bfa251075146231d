"""Where a delivery came from, in the place that a cursor has embedded."""

from collections.abc import Sequence

# An offset and the token of its lease.
Claim = tuple[int, int]


class Place:
    """One partition of a topic as one group sees it. A shell that can settle by itself adds how."""

    __slots__ = ("group", "partition", "topic")

    def __init__(self, topic: str, partition: int, group: str) -> None:
        self.topic = topic
        self.partition = partition
        self.group = group

    def ack_one(self, lane: int, offset: int, token: int) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")

    def nack(
        self, lane: int, claims: Sequence[Claim], delay: float | None, reason: str | None, error: str | None
    ) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")

    def reject(self, lane: int, claims: Sequence[Claim], reason: str | None, error: str | None) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")

    def extend(self, lane: int, claims: Sequence[Claim], seconds: float) -> None:
        raise NotImplementedError("an asynchronous delivery settles through its queue")
