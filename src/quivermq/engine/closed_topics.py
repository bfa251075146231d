"""Closed topics, which are there and not open: what can be said of one without opening it.

That is stored in the catalog when the queue is closed, and holds until the topic is used again. So a queue
of thousands of topics opens those that somebody uses, and those in which something falls due. The catalog
is a log of its own, kept short: before a topic is opened, it says, durably, that the topic's summary holds
no longer; with the queue's closing the topic gets a new one. So whatever dies in between, no summary
describes a topic as it was before.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quivermq.engine.activity import GroupActivity, TopicActivity, problems_of
from quivermq.engine.open_topic import OpenTopic
from quivermq.engine.retention import next_retention_us
from quivermq.engine.watch import Load, Pace, state_of
from quivermq.errors import DiskRefused, QuiverError, StorageFailed
from quivermq.group.group import Group
from quivermq.log import DataDirectory
from quivermq.log.directory import CATALOG_NAME
from quivermq.model.stats import QueueStats, TopicStats
from quivermq.topic.state_log import StateLog
from quivermq.topic.stored import StoredTopic

logger = logging.getLogger(__name__)

_TOPICS_A_RECORD = 100


@dataclass(frozen=True, slots=True)
class ClosedSummary:
    """What there is in a topic. Nothing changes in it by itself before `wake_us`, if that is not None."""

    partitions: range
    """Those that are in this directory."""
    messages: int
    bytes: int
    delayed: int
    left: int
    """The messages that were not taken out, which for dead letters is how many there are."""
    wake_us: int | None
    origin: str | None
    """The topic whose dead letters it has."""
    dead_letter_name: str | None
    groups: dict[str, Load] = field(default_factory=dict)

    def to_json(self) -> list[Any]:
        own = self.partitions
        figures = [
            (own.start, own.stop, own.step),
            self.messages,
            self.bytes,
            self.delayed,
            self.left,
            self.wake_us,
        ]
        return [*figures, self.origin, self.dead_letter_name, self.groups]

    @classmethod
    def from_json(cls, document: list[Any]) -> "ClosedSummary":
        """What `to_json` made. Raises ValueError, TypeError."""
        partitions, messages, size, delayed, left, wake_us, origin, dead_letter_name, groups = document
        found = {name: Load(*group) for name, group in groups.items()}
        return cls(
            range(*partitions), messages, size, delayed, left, wake_us, origin, dead_letter_name, found
        )

    def stats(self, name: str, dead_letters: int, now_us: int) -> TopicStats:
        return TopicStats(
            topic=name,
            partitions=self.partitions.stop,
            messages=self.messages,
            bytes=self.bytes,
            delayed=self.delayed,
            dead_letters=dead_letters,
            dead_letters_of=self.origin,
            groups={
                group: QueueStats(
                    name,
                    group,
                    each.pending,
                    each.in_flight,
                    each.retrying,
                    waiting_for_key=each.waiting_for_key,
                    delayed=self.delayed,
                    dead_letters=dead_letters,
                    state=state_of(each, Pace(), now_us),
                )
                for group, each in sorted(self.groups.items())
            },
        )

    def activity(self, now_us: int) -> TopicActivity:
        """Nothing has happened since the queue was opened; but what is not finished grows older."""
        groups = {
            name: GroupActivity(0, 0, max(0, now_us - oldest) // 1000 if oldest else 0, oldest)
            for name, (*_, oldest) in sorted(self.groups.items())
        }
        return TopicActivity(0, groups)


@dataclass(slots=True)
class ClosedTopic:
    """A topic that is there and not open. Without a summary, nobody knows what there is in it."""

    name: str
    groups: list[str]
    origin: str | None = None
    dead_letter_name: str | None = None
    partitions: range = range(1)
    summary: ClosedSummary | None = None

    @classmethod
    def with_summary(cls, name: str, groups: list[str], summary: ClosedSummary) -> "ClosedTopic":
        return cls(name, groups, summary.origin, summary.dead_letter_name, summary.partitions, summary)

    @classmethod
    def with_settings(cls, name: str, groups: list[str], stored: StoredTopic) -> "ClosedTopic":
        origin, settings = stored.dead_letters_of, stored.settings
        dead_letter_name = None if origin else name + settings.dead_letter_suffix
        return cls(name, groups, origin, dead_letter_name, settings.own_partitions)


def may_be_summarized(topic: OpenTopic) -> bool:
    """Whether a topic has nothing that only its opening finishes, or tells of. Asked while it is open."""
    return topic.is_settled and next(problems_of(topic), None) is None


def summary_of(topic: OpenTopic, oldest_us: Callable[[OpenTopic, Group], int]) -> ClosedSummary:
    """What there is in a topic, once its logs are closed. `oldest_us` is that of `Ages`."""
    logs = topic.topic.lanes().values()
    times = [topic.topic.delays.next_due, *(group.next_event() for group in topic.all_groups())]
    times += [next_retention_us(log, is_greedy=topic.settings.delete_finished) for log in logs]
    return ClosedSummary(
        partitions=topic.settings.own_partitions,
        messages=sum(log.end - log.start for log in logs),
        bytes=sum(log.size_bytes for log in logs),
        delayed=topic.topic.delays.pending,
        left=topic.topic.messages,
        wake_us=min((time for time in times if time is not None), default=None),
        origin=topic.origin,
        dead_letter_name=topic.dead_letter_name,
        groups={group.name: Load(*group.counts(), oldest_us(topic, group)) for group in topic.all_groups()},
    )


class StoredCatalog:
    """Comes to be with the first closing of a queue that has many topics. The caller's lock guards it."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._log: StateLog | None = None
        self._summaries: dict[str, ClosedSummary] = {}

    def load(self) -> dict[str, ClosedSummary]:
        """The summaries that hold. A catalog that cannot be read has none: then every topic is opened."""
        if not self._directory.disk.is_directory(self._directory.path / CATALOG_NAME):
            return {}
        try:
            self._log = StateLog(self._directory, CATALOG_NAME)
            self._log.apply(self._apply)
        except StorageFailed as error:
            logger.warning("the catalog of topics is not used: %s", error)
            self.forget()
        return dict(self._summaries)

    def _apply(self, record: bytes) -> None:
        try:
            used, topics = json.loads(record)
            for name in used:
                self._summaries.pop(name, None)
            self._summaries.update((name, ClosedSummary.from_json(each)) for name, each in topics.items())
        except TypeError as error:
            raise ValueError(str(error)) from error

    def use(self, name: str) -> None:
        """A topic is about to be opened: what is known of it holds no longer, whatever happens."""
        if self._log is None or self._summaries.pop(name, None) is None:
            return
        try:
            self._log.sync(self._log.append(_record([name], {})))
        except DiskRefused:
            # To take it away needs no room, and is as true.
            self.forget()

    def store(self, summaries: Mapping[str, ClosedSummary]) -> None:
        """Put these in place of what there is. All that they tell of is durable."""
        names = sorted(summaries)
        try:
            if self._log is None or self._log.log.is_closed:
                self._log = StateLog(self._directory, CATALOG_NAME)
            self._log.snapshot(
                _record([], {name: summaries[name] for name in names[start : start + _TOPICS_A_RECORD]})
                for start in range(0, len(names), _TOPICS_A_RECORD)
            )
        except QuiverError as error:
            # Then the next opening opens them all.
            logger.warning("there is no catalog of topics: %s", error)
            self.forget()

    def forget(self) -> None:
        """Take it away: nothing is known of topics that are not open. Raises StorageFailed."""
        self._summaries.clear()
        self._log = None
        self._directory.remove(CATALOG_NAME)


def _record(used: list[str], topics: Mapping[str, ClosedSummary]) -> bytes:
    document = [used, {name: summary.to_json() for name, summary in topics.items()}]
    return json.dumps(document, separators=(",", ":")).encode()
