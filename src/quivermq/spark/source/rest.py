"""What came in since a batch was planned: Spark plans a DataFrame or a view once, and uses it many times.

Each task of the plan has a share of it, by partition, and looks what there is when it runs. So every use of
a view, and of a DataFrame, reads up to the latest, as a table of the catalog does. A partition is read by
one task up to one offset, so that nothing is missing in between.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from quivermq.errors import Conflict, TopicNotFound
from quivermq.spark.options import SourceOptions
from quivermq.spark.place import Lane, Place, TopicView
from quivermq.spark.source import plan
from quivermq.spark.source.plan import Range
from quivermq.spark.source.snapshot import Snapshot, bounds_of, range_of
from quivermq.spark.source.subscription import TopicSelection
from quivermq.topic.names import NO_ORIGINS

# Every share looks at every topic once.
SHARES_MAX = 8


@dataclass(frozen=True, slots=True)
class LateShare:
    """A share of what lies behind a plan. Can be pickled."""

    ends: dict[Lane, int]
    created_us: dict[str, int]
    share: int
    shares: int

    def ranges(self, options: SourceOptions, place: Place) -> Iterator[Range]:
        """What is there now and was not planned. Raises Conflict for a topic that was made again."""
        subscription = TopicSelection.of(options)
        origins = place.origins() if subscription.is_open else NO_ORIGINS
        for topic in subscription.topics(origins or subscription.names, origins):
            try:
                view = subscription.lanes_of(plan.held(place, topic))
            except TopicNotFound:
                continue  # Whoever reads what was planned of it is told.
            if self.created_us.get(topic, view.created_us) != view.created_us:
                raise Conflict(
                    f"the topic {topic} was deleted and made again: load it, or make the view, anew"
                )
            yield from self._of_topic(options, place, view)

    def _of_topic(self, options: SourceOptions, place: Place, view: TopicView) -> Iterator[Range]:
        starting, ending = bounds_of(options)
        fails = options.flag("failOnDataLoss", default=True)
        for lane, bounds in view.lanes.items():
            if zlib.crc32(f"{lane.topic}/{lane.partition}".encode()) % self.shares != self.share:
                continue
            if lane in self.ends and self.ends[lane] >= bounds.end:
                continue
            part = range_of(place, lane, bounds, starting, ending, fails)
            start = max(part.start, self.ends.get(lane, 0))
            if start < part.end:
                yield part._replace(start=start, created_us=view.created_us)


def rests_of(snapshot: Snapshot, tasks: int) -> list[LateShare | None]:
    """What each of so many tasks looks for behind a plan: nothing, for most of many."""
    ends = {each.lane: each.end for each in snapshot.parts}
    created = {each.lane.topic: each.created_us for each in snapshot.parts}
    shares = min(tasks, SHARES_MAX)
    return [
        LateShare(ends, created, number, shares) if number < shares else None for number in range(tasks)
    ]
