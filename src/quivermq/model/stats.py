"""Figures for people and programs: what there is, how far every group has come, and what is wrong."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from quivermq.model.topic_settings import TopicSettings
from quivermq.model.turns import in_turns

GroupState = Literal["idle", "waiting", "consuming", "catching_up", "paused", "falling_behind", "stalled"]


# The worst last.
STATES: tuple[GroupState, ...] = (
    "idle",
    "waiting",
    "consuming",
    "catching_up",
    "paused",
    "falling_behind",
    "stalled",
)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A topic as one group sees it. Messages of one that was never read are all pending."""

    topic: str
    group: str
    pending: int = 0
    in_flight: int = 0
    retrying: int = 0
    waiting_for_key: int = 0
    """With `ordering=key`, messages that wait for earlier ones of their key."""
    delayed: int = 0
    dead_letters: int = 0
    state: GroupState = field(default="idle", compare=False)
    """What the group does, in one word. Of a pattern: the worst of any topic."""

    @property
    def backlog(self) -> int:
        """Everything that is not finished."""
        return sum((self.pending, self.in_flight, self.retrying, self.waiting_for_key, self.delayed))

    def as_dict(self) -> dict[str, Any]:
        # By hand, because there may be thousands of groups, and `asdict` copies everything it meets.
        return {
            "topic": self.topic,
            "group": self.group,
            "pending": self.pending,
            "in_flight": self.in_flight,
            "retrying": self.retrying,
            "waiting_for_key": self.waiting_for_key,
            "delayed": self.delayed,
            "dead_letters": self.dead_letters,
            "state": self.state,
            "backlog": self.backlog,
        }


def stats_of_all(topic: str, group: str, each: Collection[QueueStats]) -> QueueStats:
    """What a group sees of all topics of a pattern together."""
    return QueueStats(
        topic,
        group,
        pending=sum(stats.pending for stats in each),
        in_flight=sum(stats.in_flight for stats in each),
        retrying=sum(stats.retrying for stats in each),
        waiting_for_key=sum(stats.waiting_for_key for stats in each),
        delayed=sum(stats.delayed for stats in each),
        dead_letters=sum(stats.dead_letters for stats in each),
        state=max((stats.state for stats in each), key=STATES.index, default="idle"),
    )


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic as a whole."""

    topic: str
    partitions: int
    messages: int
    bytes: int
    delayed: int
    dead_letters: int
    dead_letters_of: str | None = None
    """The topic whose dead letters are here; None for a topic of its own."""
    groups: dict[str, QueueStats] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partitions": self.partitions,
            "messages": self.messages,
            "bytes": self.bytes,
            "delayed": self.delayed,
            "dead_letters": self.dead_letters,
            "dead_letters_of": self.dead_letters_of,
            "groups": {name: group.as_dict() for name, group in in_turns(self.groups.items())},
        }


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that is wrong, by a rule of that name; deploy/prometheus/alerts.yaml has the same rules."""

    alert: str
    severity: Literal["page", "ticket"]
    """Whether it is worth waking somebody for, or a look in the morning."""
    summary: str
    topic: str | None = None
    group: str | None = None
    partition: int | None = None
    priority: str | None = None
    value: float = 0
    since: int = 0
    """Since when it is known to be so, in unix microseconds."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The whole queue."""

    topics: dict[str, TopicStats]
    messages: int
    bytes: int
    free_bytes: int
    alerts: list[Alert] = field(default_factory=list, compare=False)
    """What is wrong, the worst first."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "topics": {name: topic.as_dict() for name, topic in in_turns(self.topics.items())},
            "messages": self.messages,
            "bytes": self.bytes,
            "free_bytes": self.free_bytes,
            "alerts": [asdict(alert) for alert in self.alerts],
        }


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was removed from the disk."""

    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and how it is set."""

    name: str
    partitions: int
    settings: TopicSettings
    dead_letters_of: str | None = None
    """The topic whose dead letters are here; None for a topic of its own."""


FindingKind = Literal["damage", "tail", "index", "gap", "orphan"]


@dataclass(frozen=True, slots=True)
class LogFinding:
    """Something about a file that is not as it should be.

    damage  bytes that are not the frames they should be: the only kind that means loss
    tail    a torn write, or one that is under way: cut off when the log is next opened for writing
    index   an index that does not fit its log: made anew when it is next needed
    gap     damage of the past, which a repair has set aside
    orphan  an object of a bucket that nothing names: what a crash left, or what is named or taken away soon
    """

    kind: FindingKind
    path: Path
    position: int
    end: int
    offsets: tuple[int, int | None]
    reason: str


@dataclass(slots=True)
class Report:
    """What a verification saw."""

    logs: int = 0
    segments: int = 0
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    findings: list[LogFinding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether every byte that should hold a message does."""
        return all(finding.kind != "damage" for finding in self.findings)


class Replaced(NamedTuple):
    """How large a segment was, and is."""

    bytes_before: int
    bytes_after: int
