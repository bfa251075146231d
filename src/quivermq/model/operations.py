"""What is asked of a backend, and what it answers.

Messages go in and out by methods of a `Backend`. Whatever else can be asked of one is an `Operation`, a
value that says what is wanted, and `Backend.perform` carries it out: whoever stands in between, such as a
network or a thread, hands it on without knowing which one it is.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, Generic, Literal, NamedTuple, NoReturn, TypeVar, dataclass_transform

from quivermq.disk import Buffer
from quivermq.errors import LeaseExpired, QuiverError
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.backups import Backup
from quivermq.model.checks import Period, seconds_of
from quivermq.model.dead_letters import DeadLetter, DeadLetterReason, Edits, Filter
from quivermq.model.deliveries import InFlight, check_reason
from quivermq.model.lanes import Lane, Priority
from quivermq.model.messages import ProducerState, Put, Scheduled, StoredMessage, Timeline
from quivermq.model.stats import Compacted, EngineStats, QueueStats, Replaced, Report, TopicInfo
from quivermq.model.topic_settings import TopicSettings

T = TypeVar("T")

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


@dataclass_transform(frozen_default=True)
class _Fields:
    """A frozen dataclass to whoever makes one, with methods that are written once.

    `dataclass` compiles six methods for each class, and there are forty of them: that was a tenth of the
    time that every process needs to import this library.
    """

    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._names = tuple(cls.__annotations__)

    def __init__(self, *arguments: object, **named: object) -> None:
        names = self._names
        values = dict(zip(names, arguments, strict=False)) | named
        if len(arguments) + len(named) != len(names) or values.keys() != {*names}:
            raise TypeError(f"{type(self).__name__} takes {', '.join(names) or 'nothing'}, each once")
        # Past our own refusal to be changed, and in the order of the fields, however they were given.
        vars(self).update((name, values[name]) for name in names)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


class Operation(_Fields, Generic[T]):
    """Something to do with, or to know of, a whole queue. The answer is a `T`."""


class QueueOperation(_Fields, Generic[T]):
    """The same of a topic as one group sees it, or of all topics of a pattern."""


def arguments_of(operation: Operation[Any] | QueueOperation[Any]) -> tuple[Any, ...]:
    """Its fields, in order: what the method takes that carries it out."""
    return tuple(vars(operation).values())


# Topics and groups.


class CreateTopic(Operation[None]):
    """Create a topic with these settings. Raises TopicExists, InvalidSettings, LimitReached."""

    topic: str
    exist_ok: bool
    settings: Mapping[str, Any]


class AlterTopic(Operation[None]):
    """Change these settings, for whoever uses the topic now as well. Raises InvalidSettings."""

    topic: str
    settings: Mapping[str, Any]


class DeleteTopic(Operation[None]):
    """Delete a topic with its groups. No receipt of it holds any more; its dead letters stay."""

    topic: str


class ListTopics(Operation[list[str]]):
    """The names of all topics, sorted, dead-letter topics included."""


class DescribeTopic(Operation[TopicInfo]):
    """The settings of a topic."""

    topic: str


class GetExtent(Operation[TopicExtent]):
    """How a topic is set, when it was made, and the bounds of its lanes."""

    topic: str


class ListGroups(Operation[list[str]]):
    """The groups of a topic, sorted."""

    topic: str


class DeleteGroup(Operation[bool]):
    """Forget a group; False when there is none."""

    topic: str
    group: str


# Work of programs: idempotent producers, imports, compaction.


class BeginProducer(Operation[ProducerState]):
    """Give a producer its next epoch, durably; frames of earlier ones are refused. Makes the topic."""

    topic: str
    producer_id: int


class AdoptProgress(Operation[bool]):
    """Let a group go on where another queue was; False when it is elsewhere already."""

    topic: str
    group: str
    progress: Progress
    partition: int
    priority: Priority
    expected: Progress | None


class AdoptIds(Operation[int]):
    """Remember deduplication ids of another queue, and tell how many of them still hold."""

    topic: str
    adopted: Sequence[AdoptedId]


class AdoptDeadLetters(Operation[Put]):
    """Append a frame to the dead letters of a topic, at `fsync`. Raises InvalidFrame."""

    topic: str
    frame: Buffer
    partition: int
    priority: Priority


class ReplaceSegment(Operation[Replaced]):
    """Put other frames in the place of those of a sealed segment: see `Connection.replace_segment`.

    A backend that has no segments raises NotFound.
    """

    topic: str
    partition: int
    base_offset: int
    frames: Buffer
    expected: str
    priority: Priority


# The whole queue.


class Sync(Operation[None]):
    """Return once everything that was put into any topic survives power loss."""


class GetStats(Operation[EngineStats]):
    """What there is in every topic, how far each group is, and what is wrong."""


class Compact(Operation[Compacted]):
    """Remove now what the settings no longer keep; with `archived` also what the archive has."""

    archived: bool


class UseArchive(Operation[None]):
    """Name the archive, or None for none. Raises NotFound when there is no archive."""

    directory: str | None


class Verify(Operation[Report]):
    """Check all that is stored, while the queue is in use. Damage is reported, not raised."""


class MakeBackup(Operation[Backup]):
    """Store what there is at this moment in a directory or a bucket: see `Connection.backup`.

    `progress` is called with how many bytes of how many are done, by backends that know. A broker writes
    only to the target of its settings: raises Denied.
    """

    target: str
    progress: Callable[[int, int], None] | None


# One topic, one group.


class SyncTopic(QueueOperation[None]):
    """Return once everything that was put into the topic survives power loss."""


class GetLeaseSeconds(QueueOperation[float]):
    """How many seconds a lease of that topic lasts when `take` is given none."""

    topic: str


class WaitForMessages(QueueOperation[bool]):
    """Return once there seems to be something to take: False after so many seconds. Leases nothing.

    For whoever waits for several backends at once. Somebody else may be faster.
    """

    seconds: Period


class CountPartitions(QueueOperation[int]):
    """How many partitions the topic has."""


class Seek(QueueOperation[None]):
    """Let the group go on from elsewhere. Raises InvalidRequest, OffsetOutOfRange."""

    target: SeekTarget


class Peek(QueueOperation[list[StoredMessage]]):
    """The next messages that nobody in the group has had. Leases nothing, and makes no group."""

    limit: int


class GetQueueStats(QueueOperation[QueueStats]):
    """How much there is for the group; of a topic that is not there, nothing."""


class ListDeliveries(QueueOperation[list[InFlight]]):
    """What is in flight, behind `after`, by topic, partition, lane and offset."""

    limit: int
    after: InFlight | None


class PauseGroup(QueueOperation[None]):
    """Let `take` find nothing for the group until this comes with False. Raises GroupNotFound."""

    is_paused: bool


class RetryNow(QueueOperation[int]):
    """Let what waits for its next attempt be due, and tell how many. Raises GroupNotFound."""


class Purge(QueueOperation[int]):
    """Take every message out for good, delayed ones too, and tell how many. Dead letters stay."""


# Dead letters and delayed messages.


class ListDeadLetters(QueueOperation[list[DeadLetter]]):
    """The dead letters of the topic, of all groups, by partition, lane and offset; [] without any."""

    limit: int | None


class CountReasons(QueueOperation[list[DeadLetterReason]]):
    """How many dead letters there are for each reason, the most frequent first."""


class Redrive(QueueOperation[int]):
    """Send dead letters back, each exactly once, and tell how many.

    Those with these `ids` (None: all) of which `wanted` (None: all) is true, `limit` at most.
    """

    wanted: Filter | None
    limit: int | None
    ids: Collection[str] | None
    edits: Edits


class Discard(QueueOperation[int]):
    """Take dead letters out for good, chosen as in `Redrive`, and tell how many."""

    wanted: Filter | None
    limit: int | None
    ids: Collection[str] | None


class ListScheduled(QueueOperation[list[Scheduled]]):
    """The delayed messages that wait, the next one first; [] when there is no topic."""

    limit: int | None


class CountScheduled(QueueOperation[Timeline]):
    """How many delayed messages are due in each of `bins` equal spans; 0 without a topic."""

    until_us: int | None
    bins: int


class Cancel(QueueOperation[int]):
    """Take delayed messages out, and tell how many of these were still waiting."""

    scheduled_ids: Collection[str]


class DeliverNow(QueueOperation[bool]):
    """Put a delayed message into its lane now. False when it does not wait."""

    scheduled_id: str
