"""A message as it lies in the log, for looking only."""

from collections.abc import Iterator

from quivermq.engine.hosted import Hosted
from quivermq.errors import InvalidRequest
from quivermq.frame import Wanted, each_left
from quivermq.model.checks import check_number, moment_us
from quivermq.model.lanes import LANES
from quivermq.model.messages import Record, StoredMessage
from quivermq.topic.partition import Partition

# Of how many spans a timeline may be.
BINS_MAX = 1000


def stored_message(record: Record, partition: Partition, lane: int) -> StoredMessage:
    """A record with its place."""
    return StoredMessage(partition.topic, partition.number, LANES[lane], *record)


def wanted_of(key: object, text: object) -> Wanted:
    """What somebody looks for. Raises InvalidRequest."""
    for name, given in (("key", key), ("text", text)):
        if given is not None and not isinstance(given, bytes):
            raise InvalidRequest(f"{name} is bytes, as messages have them, not a {type(given).__name__}")
    assert key is None or isinstance(key, bytes)
    assert text is None or isinstance(text, bytes)
    return Wanted(key, text)


def check_timeline(until: object, bins: object) -> int | None:
    """When a timeline ends, if somebody said so. Raises InvalidRequest."""
    check_number("bins", bins, 1, BINS_MAX)
    return None if until is None else moment_us("until", until)


def unseen(hosted: Hosted, group_name: str, now_us: int) -> Iterator[StoredMessage]:
    """The messages that nobody in a group has had, lane by lane, without taking them."""
    group = hosted.groups.get(group_name)
    for partition in hosted.topic.partitions:
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
