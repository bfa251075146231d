"""What has happened since the queue was opened, what waits for how long, and what does not work."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from quivermq.clock import Clock
from quivermq.engine.open_topic import OpenTopic
from quivermq.errors import Closing, QuiverError
from quivermq.group.group import Group
from quivermq.log import Log
from quivermq.model.lanes import PRIORITIES
from quivermq.model.turns import in_turns
from quivermq.topic.partition import LaneLogs


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


def activity_of(topic: OpenTopic, oldest: Mapping[tuple[str, str], int], now_us: int) -> TopicActivity:
    """One topic, with what `Ages` found."""
    groups = {
        name: _group_activity(group, oldest.get((topic.name, name), 0), now_us)
        for name, group in in_turns(sorted(topic.groups.copy().items()))
    }
    return TopicActivity(topic.published, groups, *topic.turned_away)


def _group_activity(group: Group, oldest_us: int, now_us: int) -> GroupActivity:
    meter = group.meter
    return GroupActivity(
        delivered=int(meter.delivered.value),
        acked=int(meter.acked.value),
        oldest_unacked_ms=max(0, now_us - oldest_us) // 1000 if oldest_us else 0,
        oldest_unacked_at=oldest_us,
        dead_lettered=int(meter.dead_lettered.value),
        leases_expired=int(meter.leases_expired.value),
    )


def problems_of(topic: OpenTopic) -> Iterator[Problem]:
    """What is wrong with a topic that is open: logs that take or show no more, groups that are lost."""
    for (partition, lane), log in topic.topic.lanes().items():
        for error in (log.failure, log.damage):
            if error is not None and not isinstance(error, Closing):
                yield Problem(str(error), topic.name, partition, PRIORITIES[lane])
    if (failure := topic.delay_failure) is not None:
        yield Problem(f"delayed messages do not come: {failure}", topic.name)
    for group, error in topic.broken_groups.items():
        yield Problem(str(error), topic.name, group=group)


def broken_topic(name: str, error: QuiverError) -> Problem:
    """A topic that could not be opened."""
    return Problem(str(error), name)


class Ages:
    """When the oldest message came in that a group has not finished with.

    Looked up in the logs, and only where a group has moved on since the last time. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looking = threading.Lock()
        # By topic, partition, lane and offset, when it was appended: groups are often at the same place.
        self._appended: dict[tuple[str, int, int, int], int] = {}

    def look(self, topics: Mapping[str, OpenTopic]) -> dict[tuple[str, str], int]:
        """By topic and group, in unix microseconds; 0 when everything is finished."""
        with self._looking:
            known, self._appended = self._appended, {}
            oldest: dict[tuple[str, str], int] = {}
            for topic in in_turns(topics.values()):
                lanes = topic.topic.lanes()
                for group in in_turns(topic.all_groups()):
                    oldest[topic.name, group.name] = self._oldest_us(topic, lanes, group, known)
            return oldest

    def oldest_us(self, topic: OpenTopic, group: Group) -> int:
        """The same of one group."""
        with self._looking:
            return self._oldest_us(topic, topic.topic.lanes(), group, self._appended)

    def _oldest_us(
        self, topic: OpenTopic, lanes: LaneLogs, group: Group, known: dict[tuple[str, int, int, int], int]
    ) -> int:
        oldest = now_us = self._clock.now_us()
        cursors = group.cursors
        for (partition, lane), log in lanes.items():
            if partition not in cursors:
                # It is just being added, and the group does not know of it yet.
                continue
            owner = topic.topic.partitions[partition]
            floor = owner.first_known(
                lane, max(owner.removals.lanes[lane].floor, cursors[partition].lanes[lane].floor)
            )
            place = (topic.name, partition, lane, floor)
            appended = self._appended.get(place) or known.get(place)
            if appended is None:
                archived = owner.known_append_time(lane, floor) if floor < log.start else None
                appended = _append_time(log, floor, now_us) if archived is None else archived
            if appended < now_us:
                self._appended[place] = appended
            oldest = min(oldest, appended)
        return oldest if oldest < now_us else 0


def _append_time(log: Log, offset: int, now_us: int) -> int:
    """When the message at an offset came in; now, where there is none."""
    if offset >= log.end:
        return now_us
    try:
        frame = next(log.frames(offset), None)
    except QuiverError:
        # Retention was faster, or the log is damaged, which others report.
        return now_us
    return now_us if frame is None else frame.header.append_time
