"""What goes for good: segments that nobody keeps any more, what is purged, and the length of journals."""

import logging

from quivermq.delivery.cursor import Cursor
from quivermq.engine.archived import check_belongs
from quivermq.engine.open_topic import OpenTopic
from quivermq.errors import DiskRefused, StorageFailed, TopicNotFound
from quivermq.log import Log, RetentionResult
from quivermq.model.lanes import PRIORITIES, Lane
from quivermq.topic.partition import Partition

logger = logging.getLogger(__name__)

# Due as soon as anybody looks.
_AT_ONCE = 0


def may_shrink(topic: OpenTopic) -> bool:
    """Whether something may have to go: most topics keep everything, and need not be looked at."""
    settings = topic.settings
    limits = (
        settings.retention_ms,
        settings.retention_bytes,
        settings.retention_messages,
        settings.segments_max,
    )
    return (
        settings.delete_finished
        or any(limit is not None for limit in limits)
        or any(lane.floor for each in topic.topic.partitions.values() for lane in each.removals.lanes)
    )


def next_retention_us(log: Log, *, is_greedy: bool) -> int | None:
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


def retain(topic: OpenTopic, *, archived: bool = False) -> RetentionResult:
    """Remove the segments that nobody keeps any more; with `archived`, those in the archive as well.

    Raises StorageFailed where the topic has an archive that cannot be reached, or is not that of its
    logs: then nothing goes that nobody is sure of. Raises DiskRefused while there is no room for a note
    of what only the messages themselves tell so far.
    """
    topic.topic.dedup.make_durable()
    if not topic.relations.settle(topic.name):
        return RetentionResult()
    is_forced = topic.settings.retention_force and not archived
    archive = None if is_forced else topic.relations.archived(topic.name)
    removed = RetentionResult()
    for partition in topic.topic.partitions.values():
        for lane, log in enumerate(partition.logs):
            if log is not None:
                end = None
                if archive is not None:
                    place = Lane(topic.name, partition.number, PRIORITIES[lane])
                    check_belongs(archive, place, log)
                    end = archive.lane(place).end
                gone = _retain_lane(topic, partition, lane, log, end, free=archived)
                removed = RetentionResult(*map(sum, zip(removed, gone, strict=True)))
    return removed


def _retain_lane(
    topic: OpenTopic, partition: Partition, lane: int, log: Log, archived_end: int | None, *, free: bool
) -> RetentionResult:
    floors = [group.floors()[partition.number][lane] for group in topic.all_groups()]
    # Nobody knows what a group that cannot be read still needs.
    floors += [log.start] * bool(topic.broken_groups)
    # What was taken out for everybody is not needed by anybody, nor by the archive.
    gone_for_all = finished = partition.removals.lanes[lane].floor
    if floors and topic.settings.delete_finished:
        finished = max(finished, min(floors))
    # Dead letters wait for somebody who sends them back, which nobody can do from the archive.
    if free and archived_end is not None and topic.origin is None:
        finished = max(finished, min([archived_end, *floors]))
    needed = []
    if not topic.settings.retention_force:
        needed += [max(finished, min(floors))] if floors else []
        needed += [] if archived_end is None else [max(gone_for_all, archived_end)]
    floor = min(needed, default=None)
    gone = log.retain(floor=floor, finished=finished if floor is None else min(finished, floor))
    for group in topic.all_groups() if gone.segments else ():
        group.cursors[partition.number].forget_gone(lane)
    return gone


def compact(topic: OpenTopic, *, archived: bool = False) -> RetentionResult:
    """Remove what nobody keeps any more, and shorten the journals."""
    removed = retain(topic, archived=archived)
    freed = sum(
        _shorten(topic, cursor) for group in topic.all_groups() for cursor in group.cursors.values()
    )
    return removed._replace(bytes=removed.bytes + freed)


def _shorten(topic: OpenTopic, cursor: Cursor) -> int:
    try:
        return cursor.compact()
    except DiskRefused as error:
        # A shorter journal needs room beside the longer one; what was removed is gone all the same.
        logger.warning("journals of %s stay as they are: %s", topic.name, error)
        return 0


def purge(topic: OpenTopic) -> int:
    """Take every message out for everybody, and return how many that were."""
    if topic.is_gone:
        raise TopicNotFound(f"the topic {topic.name} was deleted")
    count = topic.topic.messages + topic.topic.delays.clear()
    topic.topic.dedup.forget_scheduled()
    for (number, lane), log in topic.topic.lanes().items():
        topic.topic.partitions[number].removals.raise_floor(lane, log.end)
        for group in topic.groups.copy().values():
            group.cursors[number].forget_waiting(lane)
    try:
        retain(topic)
    except (DiskRefused, StorageFailed) as error:
        # Nobody gets them any more; their room is given back when the reason is gone.
        logger.warning("what was purged from %s still takes room: %s", topic.name, error)
    return count
