"""How far a stream has come, as it stands in Spark's checkpoint.

    {"orders": {"created_us": 1767225600000000, "partitions": {"0": {"normal": 23}}}}

Offsets are the next to be read. Two more members have the same form as `partitions`. `begins` says where a
lane began of which nothing had been read before: Spark keeps the end of a batch, and asks anew where the
first one begins when it has to run that again. `appended_us` says when the frame came in that holds the
last message before the offset: a log that lost its end and grew again has another one there.

A topic that was deleted and made again is another one, whatever its name: that is what `created_us` is for.
Topics that the query no longer subscribes to stay in here, so that it does not read them twice when it does
so again.
Spark compares two of these as text, so everything has one order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quivermq.errors import InvalidRequest
from quivermq.spark.place import Lane
from quivermq.topic.partition import LANE_NUMBERS


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The next offset of each lane of one topic."""

    created_us: int
    lanes: dict[Lane, int] = field(default_factory=dict)
    begins: dict[Lane, int] = field(default_factory=dict)
    appended_us: dict[Lane, int] = field(default_factory=dict)

    def is_unread(self, lane: Lane) -> bool:
        """Whether nothing was read yet of a lane that is there."""
        return lane in self.begins and self.begins[lane] == self.lanes.get(lane)


StreamOffsets = dict[str, TopicOffsets]


def to_json(offsets: StreamOffsets) -> dict[str, Any]:
    """What Spark keeps."""
    return {topic: _topic_json(offsets[topic]) for topic in sorted(offsets)}


def _topic_json(offsets: TopicOffsets) -> dict[str, Any]:
    told = {"created_us": offsets.created_us, "partitions": _by_partition(offsets.lanes)}
    more = {"begins": offsets.begins, "appended_us": offsets.appended_us}
    return told | {name: _by_partition(lanes) for name, lanes in more.items() if lanes}


def _by_partition(lanes: Mapping[Lane, int]) -> dict[str, dict[str, int]]:
    partitions: dict[str, dict[str, int]] = {}
    for lane in sorted(lanes, key=lambda lane: (lane.partition, LANE_NUMBERS[lane.priority])):
        partitions.setdefault(str(lane.partition), {})[lane.priority] = lanes[lane]
    return partitions


def from_json(document: Mapping[str, Any]) -> StreamOffsets:
    """What Spark kept. Raises InvalidRequest for what this source has not written."""
    try:
        return {
            topic: TopicOffsets(
                told["created_us"],
                _lanes(topic, told["partitions"]),
                _lanes(topic, told.get("begins", {})),
                _lanes(topic, told.get("appended_us", {})),
            )
            for topic, told in document.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidRequest(
            "the checkpoint is not one of the source quiver, or of a later release:"
            " use a new checkpointLocation"
        ) from None


def _lanes(topic: str, partitions: Mapping[str, Mapping[str, int]]) -> dict[Lane, int]:
    return {
        Lane(topic, int(partition), priority): int(offset)
        for partition, lanes in partitions.items()
        for priority, offset in lanes.items()
    }


def begin_of(start: StreamOffsets, topic: str, end: TopicOffsets, lane: Lane) -> int:
    """Where a batch that ends at `end` begins in a lane: decided by what the checkpoint holds alone."""
    begun = start.get(topic)
    if begun is None or begun.created_us != end.created_us or lane not in begun.lanes:
        return end.begins.get(lane, 0)
    # Of a lane of which nothing was read the start may be a fresh answer to an old question.
    return end.begins.get(lane, begun.lanes[lane]) if begun.is_unread(lane) else begun.lanes[lane]


def shared(lags: Mapping[Lane, int], rows_max: int) -> dict[Lane, int]:
    """How much of its lag each lane may read: in proportion, and together `rows_max`."""
    total = sum(lags.values())
    if total <= rows_max:
        return dict(lags)
    shares = {lane: lag * rows_max // total for lane, lag in lags.items()}
    left = rows_max - sum(shares.values())
    # What rounding left over goes to those that would wait the longest for their turn.
    for lane in sorted(lags, key=lambda lane: (shares[lane], lags[lane], lane)):
        if left and shares[lane] < lags[lane]:
            shares[lane] += 1
            left -= 1
    return shares
