"""What has happened since the queue was opened, and what keeps parts of it from working."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from quivermq.engine.hosted import Hosted
from quivermq.errors import Closing, QuiverError
from quivermq.group.group import Group
from quivermq.topic.partition import LANES


@dataclass(frozen=True, slots=True)
class GroupActivity:
    """What a group has had of a topic. The counters begin at 0 when the queue is opened."""

    delivered: int
    acked: int
    oldest_unacked_ms: int
    """For how long the oldest message that is not finished has been there; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class TopicActivity:
    """What has come into a topic, and what its groups have had of it."""

    published: int
    groups: dict[str, GroupActivity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the queue that does not work, and why. None stands for all of them."""

    message: str
    topic: str | None = None
    partition: int | None = None
    priority: str | None = None
    group: str | None = None


def activity_of(hosted: Hosted, ages_us: Mapping[tuple[str, str], int]) -> TopicActivity:
    """One topic, with the ages that `Ages` found."""
    groups = {
        name: _group_activity(group, ages_us.get((hosted.name, name), 0))
        for name, group in sorted(hosted.groups.items())
    }
    return TopicActivity(hosted.published, groups)


def _group_activity(group: Group, age_us: int) -> GroupActivity:
    # Every partition counts into the same.
    meter = group.cursors[0].meter
    return GroupActivity(int(meter.delivered.value), int(meter.acked.value), age_us // 1000)


def problems_of(hosted: Hosted) -> Iterator[Problem]:
    """What is wrong with a topic that is open: logs that take or show no more, groups that are lost."""
    for (partition, lane), log in hosted.topic.lanes().items():
        for error in (log.failure, log.damage):
            if error is not None and not isinstance(error, Closing):
                yield Problem(_words(error), hosted.name, partition, LANES[lane])
    if (failure := hosted.delay_failure) is not None:
        yield Problem(f"delayed messages do not come: {_words(failure)}", hosted.name)
    for group, error in hosted.broken_groups.items():
        yield Problem(_words(error), hosted.name, group=group)


def broken_topic(name: str, error: QuiverError) -> Problem:
    """A topic that could not be opened."""
    return Problem(_words(error), name)


def _words(error: QuiverError) -> str:
    return str(error)
