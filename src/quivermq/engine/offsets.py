"""Where groups are in the logs and go on from: committed offsets, and where a seek leads.

A committed offset is the position of the group's cursor, which is also where queue mode goes on from. So
there is one journal, one lag, and one answer to what retention may remove. To commit is to seek: everything
before the offset is done, everything from it on is pending, and the leases of that lane are over.
"""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from quivermq.delivery.cursor import Cursor, LaneCounts
from quivermq.engine.open_topic import OpenTopic
from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.frame import OFFSET_MAX
from quivermq.group.assignment import TopicPartition
from quivermq.model.checks import check_number, check_partition
from quivermq.model.lanes import LANE_COUNT, NORMAL, PRIORITIES, lane_number
from quivermq.model.names import check_group_name
from quivermq.model.operations import SeekTarget
from quivermq.topic.partition import Partition
from quivermq.topic.topic import Topic

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine

COMMITS_MAX = 10_000


class Commit(NamedTuple):
    """How far somebody came in one lane: the first offset that it has not finished with."""

    topic: str
    partition: int
    offset: int
    priority: str = "normal"


class CommittedOffset(NamedTuple):
    """How far a group has come in one lane, which holds `start` up to but not including `end`."""

    topic: str
    partition: int
    priority: str
    offset: int | None
    """The first offset that is not finished; None where the group has never been."""
    start: int
    end: int
    lag: int
    """How many messages are not finished."""


class _Target(NamedTuple):
    topic: OpenTopic
    partition: int
    lane: int
    offset: int


def topics_of_group(engine: "Engine", group: str) -> set[str]:
    """The topics that a group has been in, or that its members read."""
    engine.check_open()
    check_group_name(group)
    been = {topic for topic, groups in engine.catalog.table.groups_by_topic().items() if group in groups}
    return been | engine.members.topics(group)


def topics_by_group(engine: "Engine") -> dict[str, set[str]]:
    """The same of all groups: those that have been in a topic, and those that have members."""
    engine.check_open()
    found = {group: engine.members.topics(group) for group in engine.members.groups()}
    for topic, groups in engine.catalog.table.groups_by_topic().items():
        for group in groups:
            found.setdefault(group, set()).add(topic)
    return found


def committed_offsets(engine: "Engine", group: str, topics: Iterable[str]) -> list[CommittedOffset]:
    """How far a group has come in some topics: the normal lane of each partition, and others in use.

    Nothing is created for a group that has not been there. Raises TopicNotFound.
    """
    check_group_name(group)
    return [offset for topic in topics for offset in _of_topic(engine.catalog.get(topic), group)]


def commit_offsets(
    engine: "Engine",
    group: str,
    commits: Collection[Commit],
    *,
    member_id: str | None = None,
    generation: int | None = None,
) -> None:
    """Let a group go on from these offsets, once that is as durable as the topics ask for.

    Everything is checked before anything is written: raises InvalidRequest, TopicNotFound and
    OffsetOutOfRange; Fenced when a partition is not the member's; Conflict when it is somebody's and no
    member is named. A lane that is there already is not written again. Raises DiskRefused, StorageFailed:
    then some lanes may have moved and others not.
    """
    engine.check_open()
    check_group_name(group)
    if member_id is None and generation is not None:
        raise InvalidRequest("a generation is that of a member: give its member_id, too")
    targets = _checked(engine, commits)
    partitions = {TopicPartition(target.topic.name, target.partition) for target in targets}
    with engine.members.committing(group, member_id, generation, partitions):
        # Nothing is made, not even the group, for somebody who may not commit.
        pass
    cursors = [target.topic.group(group).cursors[target.partition] for target in targets]
    ends: dict[Cursor, int] = {}
    # Nobody can take over a partition between the question whose it is and the note of how far it came.
    with engine.members.committing(group, member_id, generation, partitions):
        for cursor, target in zip(cursors, targets, strict=True):
            ends[cursor] = cursor.move_to(target.lane, target.offset, is_commit=True)
    for cursor, end in ends.items():
        cursor.wait_durable(end)


def _of_topic(topic: OpenTopic, group: str) -> Iterable[CommittedOffset]:
    found = topic.groups.get(group)
    # One that is just being added is not known to the group yet.
    for partition in map(topic.topic.partitions.__getitem__, topic.settings.own_partitions):
        positions: list[int | None] = [None] * LANE_COUNT
        counts: list[LaneCounts] | None = None
        if found is not None:
            cursor = found.cursors[partition.number]
            positions, counts = cursor.committed(), cursor.counts()
        for lane, priority in enumerate(PRIORITIES):
            if partition.logs[lane] is None and lane != NORMAL:
                continue
            start, end = _bounds(partition, lane)
            position = positions[lane]
            yield CommittedOffset(
                topic.name,
                partition.number,
                priority,
                # What is gone is behind everybody.
                None if position is None else max(position, start),
                start,
                end,
                sum(counts[lane])
                if counts is not None
                else partition.removals.lanes[lane].missing_between(start, end),
            )


def _checked(engine: "Engine", commits: Collection[Commit]) -> list[_Target]:
    if len(commits) > COMMITS_MAX:
        raise InvalidRequest(f"at most {COMMITS_MAX} offsets are committed at once, not {len(commits)}")
    targets: dict[tuple[str, int, int], _Target] = {}
    for commit in commits:
        topic = engine.catalog.get(commit.topic)
        lane = lane_number(commit.priority)
        check_number("partition", commit.partition, 0, OFFSET_MAX)
        check_partition(commit.partition, topic.settings)
        check_number("offset", commit.offset, 0, OFFSET_MAX)
        start, end = _bounds(topic.topic.partitions[commit.partition], lane)
        if not start <= commit.offset <= end:
            raise OffsetOutOfRange(commit.offset, start=start, end=end)
        place = (commit.topic, commit.partition, lane)
        if place in targets:
            raise InvalidRequest(
                f"partition {commit.partition} of {commit.topic} is there twice: commit one offset for each"
                " partition and priority"
            )
        targets[place] = _Target(topic, commit.partition, lane, commit.offset)
    return list(targets.values())


def _bounds(partition: Partition, lane: int) -> tuple[int, int]:
    log = partition.logs[lane]
    return (partition.first_known(lane, 0), log.end) if log is not None else (0, 0)


# Where a seek leads.


class ReadableRange(Protocol):
    """The messages of a lane that can be read: of its log, or with what is archived before it."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    def find_time(self, timestamp: int, /) -> int: ...


def positions(
    topic: Topic,
    target: SeekTarget,
    seam: Callable[[str, Partition, int], ReadableRange] | None = None,
) -> dict[tuple[int, int], int]:
    """By partition and lane, the offset to go on from. `seam` tells of lanes with their archive.

    Raises InvalidRequest, OffsetOutOfRange, and StorageFailed where an archive cannot be reached.
    """
    to, offset, timestamp_us, partition, priority = target
    if sum(given is not None for given in (to, offset, timestamp_us)) != 1:
        raise InvalidRequest('seek to one of "earliest", "latest", an offset or a timestamp')
    check_partition(partition, topic.settings)
    if priority is None and offset is not None:
        priority = "normal"
    lane = None if priority is None else lane_number(priority)
    chosen: dict[tuple[int, int], ReadableRange] = {
        place: log if seam is None else seam(topic.name, topic.partitions[place[0]], place[1])
        for place, log in topic.lanes().items()
        if partition in (None, place[0]) and lane in (None, place[1])
    }
    if offset is not None:
        return _by_offset(chosen, offset)
    if timestamp_us is not None:
        return {place: bounds.find_time(timestamp_us) for place, bounds in chosen.items()}
    if to not in ("earliest", "latest"):
        raise InvalidRequest(f'seek to "earliest" or "latest", not {to!r}')
    return {place: bounds.start if to == "earliest" else bounds.end for place, bounds in chosen.items()}


def _by_offset(chosen: dict[tuple[int, int], ReadableRange], offset: object) -> dict[tuple[int, int], int]:
    """The offset itself, where it is; in a partition that nobody named, the nearest there is."""
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise InvalidRequest(f"offset is a number, not {offset!r}")
    ranges = {place: (bounds.start, bounds.end) for place, bounds in chosen.items()}
    if not any(start <= offset <= end for start, end in ranges.values()) and (offset or ranges):
        start, end = max(ranges.values(), key=lambda bounds: bounds[1], default=(0, 0))
        raise OffsetOutOfRange(offset, start=start, end=end)
    return {place: min(max(offset, start), end) for place, (start, end) in ranges.items()}
