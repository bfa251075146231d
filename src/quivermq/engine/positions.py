"""Where a seek leads, in every lane that it moves."""

from collections.abc import Callable
from typing import Protocol

from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.model.checks import Moment, check_partition, moment_us
from quivermq.model.lanes import lane_number
from quivermq.topic.partition import Partition
from quivermq.topic.topic import Topic


class ReadableRange(Protocol):
    """The messages of a lane that can be read: of its log, or with what is archived before it."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    def find_time(self, timestamp: int, /) -> int: ...


def positions(
    topic: Topic,
    to: str | None,
    *,
    offset: int | None,
    timestamp: Moment | None,
    partition: int | None,
    priority: str | None,
    seam: Callable[[str, Partition, int], ReadableRange] | None = None,
) -> dict[tuple[int, int], int]:
    """By partition and lane, the offset to go on from. `seam` tells of lanes with their archive.

    Raises InvalidRequest, OffsetOutOfRange, and StorageFailed where an archive cannot be reached.
    """
    if sum(given is not None for given in (to, offset, timestamp)) != 1:
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
    if timestamp is not None:
        moment = moment_us("timestamp", timestamp)
        return {place: bounds.find_time(moment) for place, bounds in chosen.items()}
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
