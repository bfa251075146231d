"""The state of a queue as its directory tells it, beside whoever writes there."""

from collections import Counter
from collections.abc import Iterator

from quivermq.clock import Clock, SystemClock
from quivermq.delivery.state import LaneState
from quivermq.delivery.unfinished import unfinished
from quivermq.errors import TopicNotFound
from quivermq.log.contents import contents, count_frames
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.journals import groups_of, lane_states
from quivermq.spark.place import Lane, LaneBounds
from quivermq.spark.tables.rows import DeliveryRow, GroupRow, SegmentRow, delivery_row
from quivermq.topic.partition import LANES


class DirectoryState:
    """Replays journals and looks at files. What a process only has in memory is not seen."""

    def __init__(self, place: DirectoryPlace, clock: Clock | None = None) -> None:
        self._place = place
        self._clock = clock or SystemClock()

    def groups(self, topic: str) -> list[str]:
        return groups_of(self._place, topic)

    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        for lane, bounds, state in self._lanes(topic, group):
            found = unfinished(state, self._clock.now_us())
            position = max(state.next, bounds.start)
            states = Counter(each.state for each in found)
            yield GroupRow(
                *lane,
                group,
                state.floor if state.has_position else None,
                position,
                bounds.start,
                bounds.end,
                self._place.removed(lane).missing_between(position, bounds.end) + states["released"],
                states["in_flight"],
                states["retrying"],
                states["waiting_for_key"],
            )

    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        for lane, _, state in self._lanes(topic, group):
            for each in unfinished(state, self._clock.now_us()):
                yield delivery_row(lane, group, *each)

    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        for lane, bounds in self._place.lanes(topic).items():
            segments = self._place.follower(lane).segments if bounds.end else ()
            for segment in segments:
                try:
                    found, frames = contents(segment), count_frames(segment)
                except FileNotFoundError:
                    continue  # Retention was faster.
                yield SegmentRow(
                    *lane,
                    found.base_offset,
                    found.end_offset,
                    found.size_bytes,
                    frames,
                    found.end_offset - found.base_offset,
                    found.first_timestamp,
                    found.last_timestamp,
                    segment is not segments[-1],
                    str(segment.path),
                )

    def _lanes(self, topic: str, group: str) -> Iterator[tuple[Lane, LaneBounds, LaneState]]:
        """Every lane that is in use, as it is and as the group sees it."""
        try:
            partitions = self._place.settings(topic).partitions
        except TopicNotFound:
            return  # Somebody has just deleted it.
        for partition in range(partitions):
            held: dict[Lane, LaneBounds] = {}

            def bounds(held: dict[Lane, LaneBounds] = held) -> dict[Lane, LaneBounds]:
                held.update(self._place.lanes(topic))
                return held

            states = lane_states(self._place, topic, group, partition, bounds)
            for priority, state in zip(LANES, states, strict=True):
                lane = Lane(topic, partition, priority)
                if lane in held and held[lane].end:
                    yield lane, held[lane], state
