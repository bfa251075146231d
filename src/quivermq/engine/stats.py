"""Figures for people and programs: what there is, and how far everybody has come."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A topic as one group sees it. Messages of one that was never read are all pending."""

    topic: str
    group: str
    pending: int = 0
    in_flight: int = 0
    retrying: int = 0
    delayed: int = 0
    dead_letters: int = 0

    @property
    def backlog(self) -> int:
        """Everything that is not finished."""
        return self.pending + self.in_flight + self.retrying + self.delayed

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "backlog": self.backlog}


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic as a whole."""

    topic: str
    partitions: int
    messages: int
    bytes: int
    delayed: int
    dead_letters: int
    groups: dict[str, QueueStats] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "groups": {name: group.as_dict() for name, group in self.groups.items()}}


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The whole queue."""

    topics: dict[str, TopicStats]
    messages: int
    bytes: int
    free_bytes: int

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "topics": {name: topic.as_dict() for name, topic in self.topics.items()}}
