"""What the logs of a topic hold, for whoever reads them in bulk."""

from collections.abc import Iterator
from typing import NamedTuple

from quivermq.engine.hosted import Hosted
from quivermq.model.lanes import LANES

_NORMAL = LANES.index("normal")


class LaneBounds(NamedTuple):
    """One lane: `start` up to but not including `end`.

    Below `sealed` nothing changes any more; what lies below `synced` survives power loss.
    """

    partition: int
    priority: str
    start: int
    sealed: int
    end: int
    bytes: int
    synced: int


def lanes_of(hosted: Hosted) -> Iterator[LaneBounds]:
    """The normal lane of each partition, and the others in use."""
    for partition in hosted.topic.partitions[: hosted.settings.partitions]:
        for number, priority in enumerate(LANES):
            log = partition.logs[number]
            segments = () if log is None else log.segments
            if log is not None and segments:
                # Taken from one look at the segments: retention may take one at any time.
                first, last = segments[0], segments[-1]
                size = sum(segment.end for segment in segments)
                synced = min(max(first.base_offset, log.synced_end), last.end_offset)
                bounds = (first.base_offset, last.base_offset, last.end_offset, size, synced)
                yield LaneBounds(partition.number, priority, *bounds)
            elif number == _NORMAL or log is not None:
                yield LaneBounds(partition.number, priority, 0, 0, 0, 0, 0)
