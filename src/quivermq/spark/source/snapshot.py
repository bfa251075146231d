"""What a batch reads, by lane: decided when it is planned or, on request, when the DataFrame is loaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from quivermq.errors import Conflict, InvalidRequest, OffsetOutOfRange
from quivermq.spark.options import SourceOptions
from quivermq.spark.place import NOTHING, Lane, LaneBounds, Place
from quivermq.spark.source import plan
from quivermq.spark.source.loss import gone
from quivermq.spark.source.plan import Range
from quivermq.spark.source.positions import Positions
from quivermq.spark.source.subscription import TopicSelection
from quivermq.spark.times import ALL_TIMES, TimeRange

# The ending offsets of whoever wants every use of a DataFrame to read the same.
NOW = "now"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The ranges of a batch. Can be pickled."""

    parts: tuple[Range, ...]

    @classmethod
    def take(cls, options: SourceOptions, place: Place) -> "Snapshot":
        """Look at every topic once. Raises InvalidRequest, TopicNotFound, and OffsetOutOfRange."""
        subscription = TopicSelection.of(options)
        starting, ending = bounds_of(options)
        topics = subscription.topics(origins := place.origins(), origins)
        subscription.check_all(topics)
        views = {topic: subscription.lanes_of(plan.held(place, topic)) for topic in topics}
        lanes = {lane: bounds for view in views.values() for lane, bounds in view.lanes.items()}
        subscription.check_partitions(lanes)
        starting.check_known(lanes)
        ending.check_known(lanes)
        fails = options.flag("failOnDataLoss", default=True)
        parts = (
            range_of(place, lane, bounds, starting, ending, fails)._replace(
                created_us=views[lane.topic].created_us
            )
            for lane, bounds in lanes.items()
        )
        return cls(tuple(parts))

    def ranges(self, place: Place, *, fails: bool) -> Iterator[Range]:
        """What is to be read now. Raises Conflict for a topic that is another one by now."""
        topics = dict.fromkeys(each.lane.topic for each in self.parts)
        views = {topic: plan.held(place, topic) for topic in topics}
        for each in self.parts:
            view = views[each.lane.topic]
            if view.created_us != each.created_us:
                raise Conflict(
                    f"the topic {each.lane.topic} was deleted and made again: load the DataFrame anew"
                )
            yield _left(each, view.lanes.get(each.lane, NOTHING), fails=fails)


def is_pinned(options: SourceOptions) -> bool:
    """Whether a batch is to read what there was when it was loaded, however often it is used."""
    return (options.text("endingOffsets") or "").lower() == NOW


def bounds_of(options: SourceOptions) -> tuple[Positions, Positions]:
    """Where a batch begins and ends. Raises InvalidRequest."""
    starting = Positions.of(options, "starting", default="earliest", unnamed="earliest")
    given = SourceOptions({**options.given, "endingoffsets": "latest"}) if is_pinned(options) else options
    ending = Positions.of(given, "ending", default="latest", unnamed="latest")
    starting.refuse("latest", "a batch that begins there has nothing to read")
    ending.refuse("earliest", "a batch that ends there has nothing to read")
    if (
        starting.moment_us is not None
        and ending.moment_us is not None
        and starting.moment_us > ending.moment_us
    ):
        raise InvalidRequest("`endingTimestamp` is before `startingTimestamp`: nothing lies between them")
    return starting, ending


def range_of(
    place: Place, lane: Lane, bounds: LaneBounds, starting: Positions, ending: Positions, fails: bool
) -> Range:
    """What the options ask for of a lane that holds what `bounds` say."""
    since_us, until_us = starting.moment_of(lane), ending.moment_of(lane)
    start = starting.resolve(place, lane, bounds)
    # Behind the first message that is too young others may follow that are not.
    end = ending.resolve(place, lane, bounds) if until_us is None else bounds.end
    if fails:
        _check_ends(lane, bounds, {starting.option: start, ending.option: end})
        if start > end and starting.is_offset(lane) and ending.is_offset(lane):
            raise InvalidRequest(
                f"{lane} is to be read from offset {start} to {end}: `{ending.option}` must not lie before"
                f" `{starting.option}`"
            )
        if start < min(end, bounds.start):
            raise gone(lane, start, end, held=(bounds.start, bounds.end), what="are not all there")
    start, end = min(max(start, bounds.start), bounds.end), min(end, bounds.end)
    times = TimeRange(
        ALL_TIMES.since_us if since_us is None else since_us,
        ALL_TIMES.until_us if until_us is None else until_us,
    )
    return Range(lane, start, max(start, end), times=times, begins_by_word=starting.is_word(lane))


def _check_ends(lane: Lane, bounds: LaneBounds, asked: Mapping[str, int]) -> None:
    """Raise OffsetOutOfRange for an option with an offset that the log does not reach."""
    for option, offset in asked.items():
        if offset > bounds.end:
            error = OffsetOutOfRange(offset, start=bounds.start, end=bounds.end)
            text = (
                f"the option `{option}` has offset {offset} for {lane}, and the log ends at {bounds.end}:"
                f" use an offset up to {bounds.end}, or set the option failOnDataLoss to false to read"
                " what there is"
            )
            error.args = (text,)
            raise error


def _left(each: Range, bounds: LaneBounds, *, fails: bool) -> Range:
    """What of a range is still there."""
    start, end = each.start, each.end
    if start < bounds.start and start < end:
        if fails and not each.begins_by_word:
            raise gone(each.lane, start, end, held=(bounds.start, bounds.end))
        start = bounds.start
    return each._replace(start=start, end=max(start, end), size_bytes=_share_bytes(bounds, start, end))


def _share_bytes(bounds: LaneBounds, start: int, end: int) -> int:
    held = bounds.end - bounds.start
    return bounds.size_bytes * max(0, end - start) // held if held else 0
