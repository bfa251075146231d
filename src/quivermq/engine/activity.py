"""What has happened since the queue was opened, and what keeps parts of it from working."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from quivermq.engine.hosted import Hosted
from quivermq.errors import Closing, QuiverError
from quivermq.group.group import Group
from quivermq.model.lanes import LANES
from quivermq.model.turns import in_turns


@dataclass(frozen=True, slots=True)
class GroupActivity:
    """What a group has had of a topic. The counters begin at 0 when the queue is opened."""

    delivered: int
    acked: int
    oldest_unacked_ms: int
    """For how long the oldest message that is not finished has been there; 0 when there is none."""
    oldest_unacked_at: int = 0
    """When that came in, in unix microseconds; 0 when there is none."""
    dead_lettered: int = 0
    leases_expired: int = 0


@dataclass(frozen=True, slots=True)
class TopicActivity:
    """What has come into a topic, and what its groups have had of it."""

    published: int
    groups: dict[str, GroupActivity] = field(default_factory=dict)
    refused: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the queue that does not work, and why. None stands for all of them."""

    message: str
    topic: str | None = None
    partition: int | None = None
    priority: str | None = None
    group: str | None = None


def activity_of(hosted: Hosted, oldest: Mapping[tuple[str, str], int], now_us: int) -> TopicActivity:
    """One topic, with what `Ages` found."""
    groups = {
        name: _group_activity(group, oldest.get((hosted.name, name), 0), now_us)
        for name, group in in_turns(sorted(hosted.groups.copy().items()))
    }
    return TopicActivity(hosted.published, groups, *hosted.turned_away)


def _group_activity(group: Group, oldest_us: int, now_us: int) -> GroupActivity:
    # Every partition counts into the same.
    meter = group.cursors[0].meter
    return GroupActivity(
        delivered=int(meter.delivered.value),
        acked=int(meter.acked.value),
        oldest_unacked_ms=max(0, now_us - oldest_us) // 1000 if oldest_us else 0,
        oldest_unacked_at=oldest_us,
        dead_lettered=int(meter.dead_lettered.value),
        leases_expired=int(meter.leases_expired.value),
    )


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
