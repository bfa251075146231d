"""A topic that is there and not open: what can be told of it without opening it.

It is written down when the queue is closed, and holds until the topic is used again. So a queue of
thousands of topics opens those that somebody uses, and those in which something falls due.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quivermq.engine.activity import GroupActivity, TopicActivity, problems_of
from quivermq.engine.ages import Ages
from quivermq.engine.group_state import Load, Pace, state_of
from quivermq.engine.hosted import Hosted
from quivermq.log import Log
from quivermq.model.stats import QueueStats, TopicStats

# Due as soon as anybody looks.
_AT_ONCE = 0


class RestingGroup(NamedTuple):
    """How far a group has come."""

    pending: int
    in_flight: int
    retrying: int
    waiting_for_key: int
    oldest_us: int
    """When the oldest message came in that is not finished; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class Resting:
    """What there is in a topic. Nothing changes in it by itself before `wake_us`, if that is not None."""

    partitions: int
    messages: int
    bytes: int
    delayed: int
    left: int
    """The messages that were not taken out, which for dead letters is how many there are."""
    wake_us: int | None
    origin: str | None
    """The topic whose dead letters it has."""
    dead_letter_name: str | None
    groups: dict[str, RestingGroup] = field(default_factory=dict)

    def to_json(self) -> list[Any]:
        figures = [self.partitions, self.messages, self.bytes, self.delayed, self.left, self.wake_us]
        return [*figures, self.origin, self.dead_letter_name, self.groups]

    @classmethod
    def from_json(cls, document: list[Any]) -> "Resting":
        """What `to_json` made. Raises ValueError, TypeError."""
        partitions, messages, size, delayed, left, wake_us, origin, dead_letter_name, groups = document
        found = {name: RestingGroup(*group) for name, group in groups.items()}
        return cls(partitions, messages, size, delayed, left, wake_us, origin, dead_letter_name, found)

    def stats(self, name: str, dead_letters: int, now_us: int) -> TopicStats:
        return TopicStats(
            topic=name,
            partitions=self.partitions,
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
                    state=state_of(Load(*each), Pace(), now_us),
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
class Rest:
    """A topic that is there and not open. Without an entry, nobody knows what there is in it."""

    name: str
    origin: str | None = None
    dead_letter_name: str | None = None
    partitions: int = 1
    entry: Resting | None = None

    @classmethod
    def of(cls, name: str, entry: Resting | None) -> "Rest":
        if entry is None:
            return cls(name)
        return cls(name, entry.origin, entry.dead_letter_name, entry.partitions, entry)


class Known(Mapping[str, Hosted | Rest]):
    """Every topic there is, open or not."""

    def __init__(self, hosted: dict[str, Hosted], resting: dict[str, Rest]) -> None:
        self._hosted = hosted
        self._resting = resting

    def __getitem__(self, name: str) -> Hosted | Rest:
        # In this order: one that is opened meanwhile is in both for a moment, and then only in the first.
        found = self._resting.get(name)
        return self._hosted[name] if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter({**self._resting.copy(), **self._hosted.copy()})

    def __len__(self) -> int:
        return len(self._resting) + len(self._hosted)


def may_rest(hosted: Hosted) -> bool:
    """Whether a topic has nothing that only its opening finishes, or tells of. Asked while it is open."""
    return hosted.is_settled and next(problems_of(hosted), None) is None


def resting(hosted: Hosted, ages: Ages) -> Resting:
    """What a topic comes to rest with, once its logs are closed."""
    logs = hosted.topic.lanes().values()
    times = [hosted.topic.delays.next_due, *(group.next_event() for group in hosted.all_groups())]
    times += [_next_retention_us(log, is_greedy=hosted.settings.delete_finished) for log in logs]
    return Resting(
        partitions=hosted.settings.partitions,
        messages=sum(log.end - log.start for log in logs),
        bytes=sum(log.size_bytes for log in logs),
        delayed=hosted.topic.delays.pending,
        left=hosted.topic.messages,
        wake_us=min((time for time in times if time is not None), default=None),
        origin=hosted.origin,
        dead_letter_name=hosted.dead_letter_name,
        groups={
            group.name: RestingGroup(*group.counts(), ages.oldest_us(hosted, group))
            for group in hosted.all_groups()
        },
    )


def _next_retention_us(log: Log, *, is_greedy: bool) -> int | None:
    """When something of a log may go that nobody adds to."""
    settings = log.settings
    if log.end == log.start:
        return None
    limits = (settings.retention_bytes, settings.retention_messages, settings.segments_max)
    if is_greedy or (len(log.segments) > 1 and any(limit is not None for limit in limits)):
        # It may be over its limits already.
        return _AT_ONCE
    if settings.retention_ms is None:
        return None
    newest_us = log.segments[0].last_append_time()
    return None if newest_us is None else newest_us + settings.retention_ms * 1000 + 1
