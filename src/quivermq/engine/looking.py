"""What can be seen of an open topic: its messages, its lanes and files, and what its groups have in hand.

Looking changes nothing.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from quivermq.delivery.state import Unfinished
from quivermq.engine.open_topic import OpenTopic
from quivermq.frame import each_left
from quivermq.group.group import Group
from quivermq.log.verify import contents
from quivermq.model.deliveries import InFlight
from quivermq.model.lanes import NORMAL, PRIORITIES, Lane, Priority, lane_number
from quivermq.model.messages import Record, StoredMessage
from quivermq.model.operations import NOTHING, LaneBounds
from quivermq.topic.partition import Partition

# Where a message is in its topic: its partition, its lane and its offset. Lists go in this order.
Place = tuple[int, int, int]
BEFORE_ALL: Place = (0, 0, -1)

# A message that a group has not finished, with its partition and priority.
UnfinishedIn = tuple[int, Priority, Unfinished]


class GroupLane(NamedTuple):
    """How far a group has come in one lane."""

    partition: int
    priority: Priority
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
    priority: Priority
    base_offset: int
    end_offset: int
    bytes: int
    sealed: bool
    first_timestamp: int | None
    last_timestamp: int | None


# The topic.


def average_bytes(topic: OpenTopic) -> int:
    """About how large a message of a topic is, as it is stored."""
    logs = [
        log for partition in topic.topic.partitions.values() for log in partition.logs if log is not None
    ]
    messages = sum(log.end - log.start for log in logs)
    return sum(log.size_bytes for log in logs) // messages if messages else 1


def lanes_of(topic: OpenTopic) -> dict[Lane, LaneBounds]:
    """The normal lane of each partition, and the others in use."""
    found: dict[Lane, LaneBounds] = {}
    for partition in map(topic.topic.partitions.__getitem__, topic.settings.own_partitions):
        for number, priority in enumerate(PRIORITIES):
            lane, log = Lane(topic.name, partition.number, priority), partition.logs[number]
            segments = () if log is None else log.segments
            if log is not None and segments:
                # Taken from one look at the segments: retention may take one at any time.
                first, last = segments[0], segments[-1]
                size = sum(segment.end for segment in segments)
                synced = min(max(first.base_offset, log.durable_end), last.end_offset)
                found[lane] = LaneBounds(first.base_offset, last.base_offset, last.end_offset, size, synced)
            elif number == NORMAL or log is not None:
                found[lane] = NOTHING
    return found


def segments_of(topic: OpenTopic, after: Place) -> Iterator[SegmentView]:
    """The files of a topic's lanes, behind a place."""
    for (partition, lane), log in sorted(topic.topic.lanes().items()):
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
                PRIORITIES[lane],
                found.base_offset,
                found.end_offset,
                found.size_bytes,
                segment is not segments[-1],
                found.first_timestamp,
                found.last_timestamp,
            )


# What a group has had of it, and what not.


def stored_message(record: Record, partition: Partition, lane: int) -> StoredMessage:
    """A record with its place."""
    return StoredMessage(partition.topic, partition.number, PRIORITIES[lane], *record)


def unseen(topic: OpenTopic, group_name: str, now_us: int) -> Iterator[StoredMessage]:
    """The messages that nobody in a group has had, lane by lane, without taking them."""
    group = topic.groups.get(group_name)
    for partition in topic.topic.partitions.values():
        for lane, log in enumerate(partition.logs):
            if log is None:
                continue
            had = 0 if group is None else group.cursors[partition.number].lanes[lane].next
            source = partition.readable(lane)
            start = source.first_from(had)
            removed = partition.removals.lanes[lane]
            frames = source.frames(start) if start < log.end else ()
            for record in (each for frame in frames for each in each_left(frame, start)):
                is_expired = record.expires_at is not None and record.expires_at <= now_us
                if not is_expired and record.offset not in removed:
                    yield stored_message(record, partition, lane)


def group_lanes(topic: OpenTopic, name: str) -> list[GroupLane]:
    """How far a group has come in every lane that is in use; one that was never there is at the start."""
    group, lanes = topic.groups.get(name), list[GroupLane]()
    counts = None if group is None else {n: cursor.counts() for n, cursor in group.cursors.items()}
    for (partition, lane), log in topic.topic.lanes().items():
        owner = topic.topic.partitions[partition]
        start = owner.first_known(lane, 0)
        if group is None or counts is None:
            lag = owner.removals.lanes[lane].missing_between(start, log.end)
            lanes.append(GroupLane(partition, PRIORITIES[lane], start, start, log.end, lag))
        elif partition in counts:
            position = owner.first_known(lane, group.cursors[partition].lanes[lane].next)
            lanes.append(
                GroupLane(partition, PRIORITIES[lane], position, start, log.end, *counts[partition][lane])
            )
    return lanes


def first_in_flight(topic: OpenTopic, group: str, limit: int, now_us: int) -> list[UnfinishedIn]:
    """The first messages that somebody of a group has."""
    found = topic.groups.get(group)
    held = (
        (cursor.partition, PRIORITIES[lane], each)
        for cursor in (() if found is None else found.cursors.values())
        for lane, each in cursor.in_flight(limit, now_us)
    )
    return list(islice(held, limit))


def unfinished_of(
    group: Group, after: Place, limit: int, now_us: int, *, only_in_flight: bool
) -> Iterator[UnfinishedIn]:
    """What a group has been given and not finished, behind a place; of each lane `limit` at most."""
    for cursor in group.cursors.values():
        find = cursor.leased if only_in_flight else cursor.unfinished
        for lane, priority in enumerate(PRIORITIES):
            place = cursor.partition, lane
            if place >= after[:2]:
                behind = after[2] if place == after[:2] else -1
                for found in find(lane, now_us, behind, limit):
                    yield cursor.partition, priority, found


def in_flight(
    topics: Iterable[OpenTopic], group: str, now_us: int, limit: int, after: InFlight | None
) -> Iterator[InFlight]:
    """Who has which message: by topic, partition, lane and offset, those behind `after`."""
    for topic in sorted(topics, key=lambda each: each.name):
        found, place = topic.groups.get(group), BEFORE_ALL
        if found is None or (after is not None and topic.name < after.topic):
            continue
        if after is not None and topic.name == after.topic:
            place = after.partition, lane_number(after.priority), after.offset
        for partition, priority, held in unfinished_of(found, place, limit, now_us, only_in_flight=True):
            yield InFlight(
                topic.name,
                partition,
                priority,
                held.offset,
                held.attempt,
                held.holder,
                held.time_us,
                held.first_us,
                held.last_us,
            )
