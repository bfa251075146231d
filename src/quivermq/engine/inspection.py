"""What can be seen of a topic, its lanes and its groups, for whoever shows it.

Looking changes nothing, but for delayed messages: those that are due come first.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from quivermq.delivery.state import Unfinished
from quivermq.engine.archived import Seam
from quivermq.engine.hosted import Hosted
from quivermq.engine.reasons import Place
from quivermq.errors import GroupNotFound
from quivermq.group.member import MemberView
from quivermq.log import Log
from quivermq.log.verify import contents
from quivermq.model.lanes import LANES
from quivermq.model.messages import Scheduled
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.partition import Partition

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine


class LaneView(NamedTuple):
    """One lane of a partition, whether anybody has used it yet or not."""

    engine: "Engine"
    partition: Partition
    number: int

    @property
    def log(self) -> Log | None:
        return self.partition.logs[self.number]

    @property
    def removed(self) -> OffsetSet:
        return self.partition.removals.lanes[self.number]

    @property
    def start(self) -> int:
        return 0 if self.log is None else self.log.start

    @property
    def end(self) -> int:
        return 0 if self.log is None else self.log.end

    @property
    def has_archive(self) -> bool:
        """Whether some of it may lie elsewhere."""
        return self.engine.archive.is_named

    @property
    def seam(self) -> Seam:
        """Archived and live offsets as one log, for one look."""
        return self.engine.seam(self.partition.topic, self.partition, self.number)

    def find_first(self) -> int:
        """The first offset that can be read, the archived ones included."""
        return self.seam.start if self.has_archive else self.start

    def told_start(self) -> int:
        """The same for showing it, which needs no fresh look at the archive."""
        return self.seam.told_start if self.has_archive else self.start

    def find_time(self, timestamp_us: int) -> int:
        """The first offset whose message is not older."""
        if self.has_archive:
            return self.seam.find_time(timestamp_us)
        return 0 if self.log is None else self.log.find_time(timestamp_us)


class GroupLane(NamedTuple):
    """How far a group has come in one lane."""

    partition: int
    priority: str
    position: int
    start: int
    end: int
    lag: int
    in_flight: int = 0
    retrying: int = 0
    waiting_for_key: int = 0


class SegmentView(NamedTuple):
    """A file of a lane."""

    partition: int
    priority: str
    base_offset: int
    end_offset: int
    bytes: int
    sealed: bool
    first_timestamp: int | None
    last_timestamp: int | None


def average_bytes(hosted: Hosted) -> int:
    """About how large a message of a topic is, as it is stored."""
    logs = [log for partition in hosted.topic.partitions for log in partition.logs if log is not None]
    messages = sum(log.end - log.start for log in logs)
    return sum(log.size_bytes for log in logs) // messages if messages else 1


def lane_of(engine: "Engine", hosted: Hosted, partition: int, lane: int) -> LaneView:
    """One lane of a topic."""
    return LaneView(engine, hosted.topic.partitions[partition], lane)


def delayed_messages(
    hosted: Hosted, now_us: int, limit: int, bytes_max: int, after: str | None
) -> list[Scheduled]:
    """The first messages that wait to be due, behind the one of an id. Raises InvalidRequest."""
    hosted.release(now_us)
    return hosted.topic.delays.scheduled(limit, bytes_max, after)


def may_wait(engine: "Engine", hosted: Hosted, group: str) -> bool:
    """Whether to take or settle messages of a group may have to wait for the disk, whatever the durability.

    That is so for a group that is new, one that has come no further than the archive, and where a lease is
    over: its message may become a dead letter.
    """
    found = hosted.groups.get(group)
    if found is None or (engine.archive.is_named and found.is_behind_logs()):
        return True
    return found.has_overdue(engine.clock.now_us())


def readers_of(engine: "Engine", topic: str, group: str) -> list[MemberView]:
    """The members of a group that read a topic."""
    view, origin = engine.members.view(group), engine.origin_of(topic)
    return [
        each for each in (() if view is None else view.members) if each.subscription.matches(topic, origin)
    ]


def is_read_by(engine: "Engine", hosted: Hosted, group: str) -> bool:
    """Whether a group has been in a topic, or has members that read it and may not have committed yet."""
    return group in hosted.groups or hosted.name in engine.members.topics(group)


def group_lanes(hosted: Hosted, name: str) -> list[GroupLane]:
    """How far a group has come in every lane that is in use; one that was never there is at the start."""
    group, lanes = hosted.groups.get(name), list[GroupLane]()
    counts = None if group is None else [cursor.counts() for cursor in group.cursors]
    for (partition, lane), log in hosted.topic.lanes().items():
        owner = hosted.topic.partitions[partition]
        start = owner.first_told(lane, 0)
        if group is None or counts is None:
            lag = owner.removals.lanes[lane].missing_between(start, log.end)
            lanes.append(GroupLane(partition, LANES[lane], start, start, log.end, lag))
        elif partition < len(counts):
            position = owner.first_told(lane, group.cursors[partition].lanes[lane].next)
            lanes.append(
                GroupLane(partition, LANES[lane], position, start, log.end, *counts[partition][lane])
            )
    return lanes


def first_in_flight(
    hosted: Hosted, group: str, limit: int, now_us: int
) -> list[tuple[int, str, Unfinished]]:
    """The first messages that somebody of a group has, each with its partition and priority."""
    found = hosted.groups.get(group)
    held = (
        (cursor.partition, LANES[lane], each)
        for cursor in (() if found is None else found.cursors)
        for lane, each in cursor.in_flight(limit, now_us)
    )
    return list(islice(held, limit))


def unfinished_of(
    engine: "Engine", hosted: Hosted, name: str, after: Place, limit: int, *, only_in_flight: bool
) -> Iterator[tuple[int, str, Unfinished]]:
    """What a group has been given and not finished, behind a place, each with its partition and priority.

    Nothing where only members of the group have read so far. Raises GroupNotFound.
    """
    group, now_us = hosted.groups.get(name), engine.clock.now_us()
    if group is None:
        if not readers_of(engine, hosted.name, name):
            raise group_not_found(hosted.name, name)
        return
    for cursor in group.cursors[after[0] :]:
        find = cursor.held if only_in_flight else cursor.unfinished
        for lane, priority in enumerate(LANES):
            lane_place = cursor.partition, lane
            if lane_place >= after[:2]:
                behind = after[2] if lane_place == after[:2] else -1
                for found in find(lane, now_us, behind, limit):
                    yield cursor.partition, priority, found


def segments_of(hosted: Hosted, after: Place) -> Iterator[SegmentView]:
    """The files of a topic's lanes, behind a place."""
    for (partition, lane), log in sorted(hosted.topic.lanes().items()):
        segments = log.segments
        for segment in segments:
            if (partition, lane, segment.base_offset) <= after:
                continue
            try:
                found = contents(segment)
            except FileNotFoundError:
                continue  # Retention was faster.
            yield SegmentView(
                partition,
                LANES[lane],
                found.base_offset,
                found.end_offset,
                found.size_bytes,
                segment is not segments[-1],
                found.first_timestamp,
                found.last_timestamp,
            )


def group_not_found(topic: str, group: str) -> GroupNotFound:
    return GroupNotFound(f"{topic} has no group {group}: it comes to be with the first receive or seek")
