"""Messages: as producers hand them over, as the log has them, as they wait; and what a put returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, overload

from quivermq.model.checks import Moment, Period
from quivermq.model.lanes import LANES

PRODUCER_ID_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Message:
    """One message of `put_many`, with what it needs besides its value."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    priority: str = "normal"
    ttl: Period | None = None
    delay: Period | None = None
    deliver_at: Moment | None = None
    dedup_id: str | None = None
    timestamp: Moment | None = None
    partition: int | None = None
    dedup_window: Period | None = None


class Record(NamedTuple):
    """One message of a log. Times are unix microseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    expires_at: int | None
    dedup_id: str | None
    origin_id: str | None = None
    """What it was called where it was before: so far, while it was delayed."""

    @property
    def scheduled_id(self) -> str | None:
        """The id under which it waited, if it was delayed."""
        return self.origin_id


class Put(NamedTuple):
    """Where a message is. A delayed one has no offset yet, but an id by which it can be cancelled."""

    topic: str
    partition: int
    priority: str
    offset: int | None
    duplicate: bool = False
    scheduled_id: str | None = None


class FirstFrame(NamedTuple):
    """Where the first frame lies that a producer ever sent to a lane."""

    partition: int
    priority: str
    offset: int


class ProducerState(NamedTuple):
    """What a producer is told that begins anew: its epoch from now on, and where it has been before."""

    epoch: int
    batches: list[FirstFrame]
    known_since_us: int = 0
    """Who was last heard of before that time may be forgotten, and begins as if for the first time."""


class Puts(Sequence[Put]):
    """The puts of a batch that lies in whole runs, made only when somebody looks at them.

    Message i is the (i // step)th of the run i % step.
    """

    __slots__ = ("_count", "_lane", "_runs", "_topic")

    def __init__(self, topic: str, lane: int, runs: Sequence[tuple[int, int]], count: int) -> None:
        self._topic = topic
        self._lane = lane
        self._runs = runs
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Put: ...

    @overload
    def __getitem__(self, index: slice) -> list[Put]: ...

    def __getitem__(self, index: int | slice) -> Put | list[Put]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(index)
        partition, base = self._runs[index % len(self._runs)]
        return Put(self._topic, partition, LANES[self._lane], base + index // len(self._runs))

    def __repr__(self) -> str:
        return f"<Puts of {self._count} messages to {self._topic}>"


# Without the checks of the class's own constructor, which cost more than the rest of a plain put.
plain_put = partial(tuple.__new__, Put)


class StoredMessage(NamedTuple):
    """What `read` and `peek` return. Times are unix microseconds."""

    topic: str
    partition: int
    priority: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    expires_at: int | None
    dedup_id: str | None
    scheduled_id: str | None = None
    """The id under which it waited, if it was delayed."""


class Scheduled(NamedTuple):
    """A message that waits, as people see it."""

    id: str
    deliver_at: int
    partition: int
    priority: str
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    timestamp: int
    expires_at: int | None
    dedup_id: str | None


class Timeline(NamedTuple):
    """How many messages are due in each of some equal spans of time from `start` to `end`, and after it.

    Times are unix microseconds. What is due already counts for the first span.
    """

    start: int
    end: int
    counts: list[int]
    later: int
