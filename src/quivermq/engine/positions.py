"""Where a seek leads, in every lane that it moves."""

from collections.abc import Callable

from quivermq.engine.archived import Seam
from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.topic.incoming import Moment, check_partition, moment_us
from quivermq.topic.partition import Partition, lane_number
from quivermq.topic.topic import Topic


def positions(
    topic: Topic,
    to: str | None,
    *,
    offset: int | None,
    timestamp: Moment | None,
    partition: int | None,
    priority: str | None,
    seam: "Callable[[str, Partition, int], Seam] | None" = None,
) -> dict[tuple[int, int], int]:
    """By partition and lane, the offset to go on from. `seam` tells of lanes with their archive.

    Raises InvalidRequest, and OffsetOutOfRange also for what is only archived: nobody would notice that a
    group does not get it.
    """
    if sum(given is not None for given in (to, offset, timestamp)) != 1:
        raise InvalidRequest('seek to one of "earliest", "latest", an offset or a timestamp')
    check_partition(partition, topic.settings)
    if offset is not None:
        number = lane_number("normal" if priority is None else priority)
        if seam is not None and isinstance(offset, int):
            for owner in topic.partitions if partition is None else [topic.partitions[partition]]:
                _check_live(owner, number, offset, seam(topic.name, owner, number).start)
        return _by_offset(topic, offset, partition, number)
    lane = None if priority is None else lane_number(priority)
    chosen = {
        place: log
        for place, log in topic.lanes().items()
        if partition in (None, place[0]) and lane in (None, place[1])
    }
    if timestamp is not None:
        moment = moment_us("timestamp", timestamp)
        for number, lane in chosen if seam is not None else ():
            assert seam is not None
            owner = topic.partitions[number]
            found = seam(topic.name, owner, lane).find_time(moment)
            _check_live(owner, lane, found, found)
        return {place: log.find_time(moment) for place, log in chosen.items()}
    if to not in ("earliest", "latest"):
        raise InvalidRequest(f'seek to "earliest" or "latest", not {to!r}')
    return {place: log.start if to == "earliest" else log.end for place, log in chosen.items()}


def _check_live(owner: Partition, lane: int, offset: int, archived_start: int) -> None:
    """Raise OffsetOutOfRange for an offset before the log that the archive has."""
    log = owner.logs[lane]
    if log is None or not archived_start <= offset < log.start:
        return
    error = OffsetOutOfRange(offset, start=log.start, end=log.end)
    text = (
        f"offset {offset} of {owner.topic}, partition {owner.number}, is archived, and a group is given"
        f" what is in the log, which holds [{log.start}, {log.end}): `read` and Spark read the archive, and"
        " `quiver pipeline replay` sends messages of it to a topic again"
    )
    error.args = (text,)
    raise error


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
