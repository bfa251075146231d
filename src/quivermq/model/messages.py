"""Messages: as producers hand them over, as the log has them, as they wait; and what a put returns."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, overload

from quivermq.model.checks import Moment, Period
from quivermq.model.lanes import PRIORITIES, Priority

PRODUCER_ID_MAX = 2**64 - 1


class Message(NamedTuple):
    """One message of `put_many`, with what it needs besides its value."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    priority: Priority = "normal"
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
    priority: Priority
    offset: int | None
    duplicate: bool = False
    scheduled_id: str | None = None


class FirstFrame(NamedTuple):
    """Where the first frame lies that a producer ever sent to a lane."""

    partition: int
    priority: Priority
    offset: int


class ProducerState(NamedTuple):
    """What a producer that begins anew gets to know: its epoch from now on, and where it was before."""

    epoch: int
    batches: list[FirstFrame]
    known_since_us: int = 0
    """Who was last heard of before that time may be forgotten, and begins as if for the first time."""


class Puts(Sequence[Put]):
    """The puts of a batch, made only when somebody looks at them.

    The messages went in turn to some partitions, whose `runs` are a partition and its first offset each:
    message i is number i // len(runs) of the run i % len(runs).
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
        return Put(self._topic, partition, PRIORITIES[self._lane], base + index // len(self._runs))

    def __repr__(self) -> str:
        return f"<Puts of {self._count} messages to {self._topic}>"


# Without the checks of the class's own constructor, which cost more than the rest of a plain put.
plain_put = partial(tuple.__new__, Put)


def note_run(results: list[Put | None], indexes: Sequence[int], first: Put) -> None:
    """Note where the messages of a batch are that follow each other in a lane, from `first` on."""
    assert first.offset is not None, "what waits is in no lane"
    lane = first[:3]
    for offset, index in enumerate(indexes, first.offset):
        results[index] = plain_put((*lane, offset, False, None))


class StoredMessage(NamedTuple):
    """What `read` and `peek` return. Times are unix microseconds."""

    topic: str
    partition: int
    priority: Priority
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
    priority: Priority
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    timestamp: int
    expires_at: int | None
    dedup_id: str | None


# Of how many spans a timeline may be.
BINS_MAX = 1000


class Timeline(NamedTuple):
    """How many messages are due in each of some equal spans of time from `start` to `end`, and after it.

    Times are unix microseconds. What is due already counts for the first span.
    """

    start: int
    end: int
    counts: list[int]
    later: int

    @classmethod
    def empty(cls, now_us: int, until_us: int | None, bins: int) -> "Timeline":
        """That of a topic which is not there. Each of its spans is at least a microsecond long."""
        return cls(now_us, max(now_us + bins, until_us or 0), [0] * bins, 0)
