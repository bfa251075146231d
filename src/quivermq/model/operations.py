"""What is asked of a queue as a whole, and what it answers: the values of a `Backend`."""

from typing import Literal, NamedTuple

from quivermq.errors import LeaseExpired, QuiverError
from quivermq.model.checks import Period, seconds_of
from quivermq.model.deliveries import check_reason
from quivermq.model.lanes import Lane, Priority
from quivermq.model.topic_settings import TopicSettings

Tokens = list[int]
"""The tokens of leases that a call has asked for: what it takes to give back what never arrived."""


class Settle(NamedTuple):
    """What became of messages, or is to become of their leases."""

    act: Literal["ack", "nack", "release", "reject", "extend"]
    delay: Period | None = None
    """Of a nack: how many seconds until the next attempt, None for a growing wait."""
    reason: str | None = None
    error: str | None = None
    seconds: Period = 0
    """Of an extension: how long the lease lasts from now."""

    @classmethod
    def nacked(cls, delay: Period | None, reason: str | None, error: str | None) -> "Settle":
        """Messages failed. Raises InvalidRequest, as the next two."""
        if delay is not None:
            seconds_of("delay", delay, lowest=0)
        check_reason(reason, error)
        return cls("nack", delay, reason, error)

    @classmethod
    def rejected(cls, reason: str | None, error: str | None) -> "Settle":
        """Messages can never succeed."""
        check_reason(reason, error)
        return cls("reject", None, reason, error)

    @classmethod
    def extended(cls, seconds: Period) -> "Settle":
        """Leases last longer."""
        seconds_of("seconds", seconds, lowest=0.001)
        return cls("extend", seconds=seconds)


class Settled(NamedTuple):
    """What is said to a `Settle`: the receipts whose leases were over, and what else went wrong."""

    late: list[str]
    failure: QuiverError | None = None

    def check(self) -> None:
        """Raise what went wrong, or LeaseExpired for what came late."""
        if self.failure is not None:
            raise self.failure
        if self.late:
            raise LeaseExpired(receipts=self.late)


class SeekTarget(NamedTuple):
    """Where a group goes on: one of the first three is given."""

    to: str | None = None
    offset: int | None = None
    timestamp_us: int | None = None
    partition: int | None = None
    priority: Priority | None = None


class LaneBounds(NamedTuple):
    """What a lane holds: `start` up to but not including `end`, in so many bytes.

    Below `sealed` nothing changes any more; what lies below `synced` is known to survive power loss.
    """

    start: int
    sealed: int
    end: int
    bytes: int
    synced: int = 0


NOTHING = LaneBounds(0, 0, 0, 0)


class TopicExtent(NamedTuple):
    """One look at a topic. When it was created tells it from an earlier one of its name."""

    created_us: int
    settings: TopicSettings
    lanes: dict[Lane, LaneBounds]
    """The normal lane of each partition and the others in use, in order."""
    dead_letters_of: str | None
