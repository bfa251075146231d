"""What the broker shows of topics and groups, by name: values, and one lane as it grows.

Looking changes nothing, but for delayed messages: those that are due come first.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from quivermq.engine.dead_letters import CountedReasons, count_reasons, each_dead_letter
from quivermq.engine.lane_view import LaneView
from quivermq.engine.looking import (
    GroupLane,
    Place,
    SegmentView,
    UnfinishedIn,
    average_bytes,
    first_in_flight,
    group_lanes,
    segments_of,
    unfinished_of,
    unseen,
)
from quivermq.errors import GroupNotFound
from quivermq.group.member import MemberView
from quivermq.model.dead_letters import DeadLetter
from quivermq.model.lanes import lane_number
from quivermq.model.messages import Scheduled, StoredMessage
from quivermq.model.names import Pattern, is_pattern
from quivermq.model.stats import QueueStats, TopicStats

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine


class GroupDescription(NamedTuple):
    """A group in one topic: how far it has come, what it has in hand, its members that read the topic."""

    stats: QueueStats
    lanes: list[GroupLane]
    in_flight: list[UnfinishedIn]
    members: list[MemberView]


class Inspection:
    """Looks at the topics of an engine. Every call raises TopicNotFound unless it says otherwise."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def topic(self, name: str) -> TopicStats:
        return self._engine.statistics.of_topic(self._engine.catalog.get(name))

    def lane(self, topic: str, partition: int, priority: str) -> LaneView:
        return LaneView(self._engine, self._engine.catalog.get(topic), partition, priority)

    def segments(self, topic: str, after: Place) -> Iterator[SegmentView]:
        """The files of a topic's lanes, behind a place."""
        return segments_of(self._engine.catalog.get(topic), after)

    def average_bytes(self, topic: str) -> int | None:
        """About how large a message of a topic is, as it is stored; of a pattern, where they are largest.

        None where there is no topic.
        """
        if is_pattern(topic):
            return max(map(average_bytes, self._engine.catalog.find_matching(Pattern(topic))), default=None)
        found = self._engine.catalog.find(topic)
        return None if found is None else average_bytes(found)

    def scheduled(self, topic: str, limit: int, bytes_max: int, after: str | None) -> list[Scheduled]:
        """The first messages that wait to be due, behind the one of an id. Raises InvalidRequest."""
        found = self._engine.catalog.get(topic)
        found.release(self._engine.clock.now_us())
        return found.topic.delays.scheduled(limit, bytes_max, after)

    def unseen(self, topic: str, group: str, after: Place | None) -> Iterator[StoredMessage]:
        """The messages behind a place that nobody in a group has had, lane by lane, without taking them."""
        found, now_us = self._engine.catalog.get(topic), self._engine.clock.now_us()
        found.release(now_us)
        messages = unseen(found, group, now_us)
        if after is None:
            return messages
        return (m for m in messages if (m.partition, lane_number(m.priority), m.offset) > after)

    # Dead letters.

    def dead_letter_topic(self, topic: str) -> str | None:
        """The name of the topic where the dead letters of a topic lie; None while it has none."""
        found = self._engine.catalog.dead_letter_topic_of(topic)
        if found is None:
            self._engine.catalog.get(topic)
        return None if found is None else found.name

    def dead_letters(self, dead_letter_topic: str, after: Place) -> Iterator[DeadLetter]:
        """The dead letters behind a place one by one, for those who may not want them all in memory."""
        return each_dead_letter(self._engine.catalog.get(dead_letter_topic), after)

    def reasons(
        self, dead_letter_topic: str, after: Place, is_over: Callable[[int], bool]
    ) -> CountedReasons:
        """Count dead letters from a place on, until `is_over` says that so many bytes more were enough."""
        return count_reasons(self._engine.catalog.get(dead_letter_topic), after, is_over)

    # Groups.

    def may_wait(self, topic: str, group: str) -> bool:
        """Whether to take or settle messages of a group may wait for the disk, whatever the durability.

        That is so for a topic or a group that is new, one that has come no further than the archive, and
        where a lease is over: its message may become a dead letter.
        """
        found = self._engine.catalog.find(topic)
        known = None if found is None else found.groups.get(group)
        if known is None or (self._engine.archive.is_named and known.is_behind_logs()):
            return True
        return known.has_overdue(self._engine.clock.now_us())

    def is_read_by(self, topic: str, group: str) -> bool:
        """Whether a group has been in a topic, or has members that read it, and have not committed yet."""
        return group in self._engine.catalog.get(topic).groups or topic in self._engine.members.topics(
            group
        )

    def group(self, topic: str, group: str, held_max: int) -> GroupDescription:
        """A group, with so many of the messages it has in hand. Raises GroupNotFound."""
        found = self._engine.catalog.get(topic)
        stats, members = self._engine.statistics.of_group(found, group), self.readers(topic, group)
        # Members that read the topic, and have not committed anything yet, have all of it before them.
        if group not in found.groups and not members:
            raise group_not_found(topic, group)
        in_flight = first_in_flight(found, group, held_max, self._engine.clock.now_us())
        return GroupDescription(stats, group_lanes(found, group), in_flight, members)

    def readers(self, topic: str, group: str) -> list[MemberView]:
        """The members of a group that read a topic, which need not be there."""
        view, origin = self._engine.members.view(group), self._engine.catalog.table.origin_of(topic)
        members = () if view is None else view.members
        return [each for each in members if each.subscription.matches(topic, origin)]

    def unfinished(
        self, topic: str, group: str, after: Place, limit: int, *, only_in_flight: bool
    ) -> Iterator[UnfinishedIn]:
        """What a group has been given and not finished, behind a place.

        Nothing where only members of the group have read so far. Raises GroupNotFound.
        """
        found = self._engine.catalog.get(topic).groups.get(group)
        if found is None:
            if not self.readers(topic, group):
                raise group_not_found(topic, group)
            return iter(())
        now_us = self._engine.clock.now_us()
        return unfinished_of(found, after, limit, now_us, only_in_flight=only_in_flight)


def group_not_found(topic: str, group: str) -> GroupNotFound:
    return GroupNotFound(f"{topic} has no group {group}: it comes to be with the first receive or seek")
