"""Where a seek leads, in every lane that it moves."""

from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.topic.incoming import Moment, check_partition, moment_us
from quivermq.topic.partition import lane_number
from quivermq.topic.topic import Topic


def positions(
    topic: Topic,
    to: str | None,
    *,
    offset: int | None,
    timestamp: Moment | None,
    partition: int | None,
    priority: str | None,
) -> dict[tuple[int, int], int]:
    """By partition and lane, the offset to go on from. Raises InvalidRequest, OffsetOutOfRange."""
    if sum(given is not None for given in (to, offset, timestamp)) != 1:
        raise InvalidRequest('seek to one of "earliest", "latest", an offset or a timestamp')
    check_partition(partition, topic.settings)
    if offset is not None:
        return _by_offset(topic, offset, partition, lane_number("normal" if priority is None else priority))
    lane = None if priority is None else lane_number(priority)
    chosen = {
        place: log
        for place, log in topic.lanes().items()
        if partition in (None, place[0]) and lane in (None, place[1])
    }
    if timestamp is not None:
        moment = moment_us("timestamp", timestamp)
        return {place: log.find_time(moment) for place, log in chosen.items()}
    if to not in ("earliest", "latest"):
        raise InvalidRequest(f'seek to "earliest" or "latest", not {to!r}')
    return {place: log.start if to == "earliest" else log.end for place, log in chosen.items()}


def _by_offset(
    topic: Topic, offset: object, partition: int | None, lane: int
) -> dict[tuple[int, int], int]:
    """The offset itself, where it is; in a partition that nobody named, the nearest there is."""
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise InvalidRequest(f"offset is a number, not {offset!r}")
    numbers = range(len(topic.partitions)) if partition is None else [partition]
    logs = {number: topic.partitions[number].logs[lane] for number in numbers}
    ranges = {number: (log.start, log.end) if log else (0, 0) for number, log in logs.items()}
    if not any(start <= offset <= end for start, end in ranges.values()):
        start, end = max(ranges.values(), key=lambda bounds: bounds[1])
        raise OffsetOutOfRange(offset, start=start, end=end)
    return {(n, lane): min(max(offset, start), end) for n, (start, end) in ranges.items() if logs[n]}
