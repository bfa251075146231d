"""A message as it was sent, and as the queue shows it."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Priority = Literal["high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low")


class Place(NamedTuple):
    """Where a message is in a topic."""

    partition: int
    priority: Priority
    offset: int

    @property
    def lane(self) -> tuple[int, Priority]:
        return self.partition, self.priority


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as it was handed to the queue. Its number is its value, and no other's."""

    number: int
    key: bytes | None = None
    headers: dict[str, bytes] = field(default_factory=dict)
    priority: Priority = "normal"
    partition: int | None = None
    """The one that was asked for; None leaves it to the queue."""
    due_at: int | None = None
    """When a delayed message may show up in its lane."""
    expires_at: int | None = None
    dedup_id: str | None = None
    batch: int | None = None
    """Messages of one batch for one lane are there together or not at all."""

    @property
    def value(self) -> bytes:
        return b"%d:" % self.number + b"x" * (self.number % 5 * 30)

    def is_expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def check(self, value: bytes, key: bytes | None, headers: dict[str, bytes]) -> None:
        """What comes out is what went in."""
        assert (value, key, headers) == (self.value, self.key, self.headers), f"not what was sent: {self}"


def number_in(value: bytes) -> int:
    return int(value.partition(b":")[0])


class DeadRecord(NamedTuple):
    """A message of the dead-letter topic, split into what was sent and why it is here."""

    partition: int
    offset: int
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    group: str
    place: Place
    attempts: int
    reason: str
    error: str

    @property
    def name(self) -> tuple[int, int]:
        """What tells it from every other dead letter."""
        return self.partition, self.offset


class LaneRecord(NamedTuple):
    """A message in a lane's log."""

    place: Place
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything that a topic shows to somebody who only looks."""

    starts: dict[tuple[int, Priority], int]
    """Where each lane that has something begins."""
    records: list[LaneRecord]
    """What the model has not seen before, lane by lane in the order of the log."""
    scheduled: dict[str, int]
    """The number of each delayed message, by the id it can be cancelled with."""
    dead: list[DeadRecord]
