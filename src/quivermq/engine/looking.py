"""A message as it lies in the log, for looking only."""

from collections.abc import Iterator
from typing import NamedTuple

from quivermq.engine.hosted import Hosted
from quivermq.frame import Record
from quivermq.topic.partition import LANES, Partition


class StoredMessage(NamedTuple):
    """What `read` and `peek` return. Times are unix microseconds."""

    topic: str
    partition: int
    priority: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    expires_at: int | None
    dedup_id: str | None


def stored_message(record: Record, partition: Partition, lane: int) -> StoredMessage:
    """A record with its place."""
    return StoredMessage(partition.topic, partition.number, LANES[lane], *record)


def unseen(hosted: Hosted, group_name: str, now_us: int) -> Iterator[StoredMessage]:
    """The messages that nobody in a group has had, lane by lane, without taking them."""
    group = hosted.groups.get(group_name)
    for partition in hosted.topic.partitions:
        for lane, log in enumerate(partition.logs):
            if log is None:
                continue
            had = 0 if group is None else group.cursors[partition.number].lanes[lane].next
            start = max(log.start, had)
            removed = partition.removals.lanes[lane]
            for record in log.records(start) if start < log.end else ():
                is_expired = record.expires_at is not None and record.expires_at <= now_us
                if not is_expired and record.offset not in removed:
                    yield stored_message(record, partition, lane)
