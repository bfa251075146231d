"""A message as it lies in the log, for looking only."""

from typing import NamedTuple

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
