"""What a batch reads, decided once: when the DataFrame is loaded, not whenever it is used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from quivermq.errors import Conflict, InvalidRequest, OffsetOutOfRange
from quivermq.spark.options import Options
from quivermq.spark.place import NOTHING, Bounds, Lane, Place
from quivermq.spark.source import plan
from quivermq.spark.source.loss import gone
from quivermq.spark.source.narrowing import Narrowing
from quivermq.spark.source.plan import Range
from quivermq.spark.source.positions import Positions
from quivermq.spark.source.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Pinned:
    """A lane and the offsets that are read of it. Where it begins `by_word`, retention may move that."""

    part: Range
    begins_by_word: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The ranges of a batch. Can be pickled."""

    pinned: tuple[Pinned, ...]

    @classmethod
    def take(cls, options: Options, place: Place) -> "Snapshot":
        """Look at every topic once. Raises InvalidRequest, TopicNotFound, and OffsetOutOfRange."""
        subscription = Subscription.of(options)
        starting, ending = bounds_of(options)
        topics = subscription.topics(place.topics())
        subscription.check_all(topics)
        views = {topic: plan.held(place, topic) for topic in topics}
        lanes = {lane: bounds for view in views.values() for lane, bounds in view.lanes.items()}
        starting.check_known(lanes)
        ending.check_known(lanes)
        fails = options.flag("failOnDataLoss", default=True)
        pinned = tuple(
            Pinned(
                _range(place, lane, bounds, starting, ending, fails)._replace(
                    created_us=views[lane.topic].created_us
                ),
                starting.is_word(lane),
            )
            for lane, bounds in lanes.items()
        )
        return cls(pinned)

    def ranges(self, place: Place, narrowing: Narrowing, *, fails: bool) -> Iterator[Range]:
        """What is to be read now. Raises Conflict for a topic that is another one by now."""
        kept = [each for each in self.pinned if narrowing.keeps(each.part.lane)]
        views = {topic: plan.held(place, topic) for topic in dict.fromkeys(e.part.lane.topic for e in kept)}
        for each in kept:
            lane, view = each.part.lane, views[each.part.lane.topic]
            if view.created_us != each.part.created_us:
                raise Conflict(
                    f"the topic {lane.topic} was deleted and made again: load the DataFrame anew"
                )
            bounds = view.lanes.get(lane, NOTHING)
            yield _narrowed(place, each, bounds, narrowing, fails=fails)


def bounds_of(options: Options) -> tuple[Positions, Positions]:
    """Where a batch begins and ends. Raises InvalidRequest."""
    starting = Positions.of(options, "starting", default="earliest", unnamed="earliest")
    ending = Positions.of(options, "ending", default="latest", unnamed="latest")
    starting.refuse("latest", "a batch that begins there has nothing to read")
    ending.refuse("earliest", "a batch that ends there has nothing to read")
    if (
        starting.moment_us is not None
        and ending.moment_us is not None
        and starting.moment_us > ending.moment_us
    ):
        raise InvalidRequest("`endingTimestamp` is before `startingTimestamp`: nothing lies between them")
    return starting, ending


def _range(
    place: Place, lane: Lane, bounds: Bounds, starting: Positions, ending: Positions, fails: bool
) -> Range:
    start, end = starting.resolve(place, lane, bounds), ending.resolve(place, lane, bounds)
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
    return Range(lane, start, max(start, end))


def _check_ends(lane: Lane, bounds: Bounds, asked: Mapping[str, int]) -> None:
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


def _narrowed(place: Place, each: Pinned, bounds: Bounds, narrowing: Narrowing, *, fails: bool) -> Range:
    lane, start, end = each.part[:3]
    if start < bounds.start and start < end:
        if fails and not each.begins_by_word:
            raise gone(lane, start, end, held=(bounds.start, bounds.end))
        start = bounds.start
    start = max(start, narrowing.offset.lowest)
    end = min(end, narrowing.offset.highest + 1)
    if start < end and narrowing.timestamp_us.is_bounded_below:
        # Everything before it is older. The other end has no such offset: times need not be in order.
        start = max(start, place.find_time(lane, narrowing.timestamp_us.lowest))
    return each.part._replace(start=start, end=end, size_bytes=_share_bytes(bounds, start, end))


def _share_bytes(bounds: Bounds, start: int, end: int) -> int:
    held = bounds.end - bounds.start
    return bounds.size_bytes * max(0, end - start) // held if held else 0
