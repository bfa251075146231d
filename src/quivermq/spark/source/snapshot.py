"""What a batch reads, by lane: decided when it is planned or, on request, when the DataFrame is loaded."""

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from quivermq.errors import Conflict, InvalidRequest, OffsetOutOfRange, TopicNotFound
from quivermq.frame import OFFSET_MAX
from quivermq.model.lanes import PRIORITIES, Lane, Priority
from quivermq.model.names import NO_ORIGINS
from quivermq.model.operations import NOTHING, LaneBounds, TopicExtent
from quivermq.reading.reader import MessageReader
from quivermq.reading.rows import ALL_TIMES, Range, TimeRange, gone
from quivermq.spark.options import MS_MAX, SourceOptions
from quivermq.spark.subscription import TopicSelection

EARLIEST, LATEST = -2, -1

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_PARTITION = re.compile(r"[0-9]{1,9}")

# Checks what stands for a partition: the option, where in it, and what.
_Number = Callable[[str, str, Any], int]


@dataclass(frozen=True, slots=True)
class Positions:
    """A place in every lane: one for all, where `lanes` or `moments` has no other; or one by a moment."""

    option: str
    common: int
    lanes: dict[Lane, int]
    moment_us: int | None = None
    moments: dict[Lane, int] = field(default_factory=dict)
    fails_behind: bool = False
    """Whether it is an error that no message is as young as a moment."""

    @classmethod
    def of(
        cls, options: SourceOptions, which: Literal["starting", "ending"], *, default: str, unnamed: str
    ) -> "Positions":
        """What `…Offsets`, `…Timestamp` or `…OffsetsByTimestamp` say.

        Raises InvalidRequest when more than one does, or one is wrong.
        """
        name, time_name, times_name = f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"
        text, times, moment_us = options.text(name), options.text(times_name), options.moment_us(time_name)
        if sum(each is not None for each in (text, times, moment_us)) > 1:
            raise InvalidRequest(f"give one of `{name}`, `{time_name}` and `{times_name}`")
        fails = which == "starting" and _fails_behind(options)
        if moment_us is not None:
            return cls(time_name, _WORDS[unnamed], {}, moment_us, fails_behind=fails)
        if times is not None:
            moments = dict(_parsed(times_name, times, _milliseconds))
            return cls(times_name, _WORDS[unnamed], {}, moments=moments, fails_behind=fails)
        text = default if text is None else text
        if text.lower() in _WORDS:
            return cls(name, _WORDS[text.lower()], {})
        return cls(name, _WORDS[unnamed], dict(_parsed(name, text, _offset)))

    def refuse(self, word: Literal["earliest", "latest"], reason: str) -> None:
        """Raise InvalidRequest when some lane is to be at a place that makes no sense."""
        if _WORDS[word] in (self.common, *self.lanes.values()):
            raise InvalidRequest(f"the option `{self.option}` cannot be {word}: {reason}")

    def check_known(self, lanes: Iterable[Lane]) -> None:
        """Raise InvalidRequest when a lane is named whose partition is not read."""
        known = {lane[:2] for lane in lanes}
        for lane in (*self.lanes, *self.moments):
            if lane[:2] not in known:
                raise InvalidRequest(
                    f"the option `{self.option}` names partition {lane.partition} of {lane.topic},"
                    " which is not among what is subscribed to"
                )

    def moment_of(self, lane: Lane) -> int | None:
        """The moment by which the place in a lane is found; None where it is found otherwise."""
        return self.moments.get(lane, self.moment_us)

    def is_word(self, lane: Lane) -> bool:
        """Whether the place is the earliest or the latest there is, and no offset in particular."""
        return self.moment_of(lane) is None and self.lanes.get(lane, self.common) < 0

    def is_offset(self, lane: Lane) -> bool:
        """Whether the place is an offset that somebody named."""
        return self.moment_of(lane) is None and not self.is_word(lane)

    def resolve(self, reader: MessageReader, lane: Lane, bounds: LaneBounds) -> int:
        """The offset in a lane that holds what `bounds` say. One that was named may lie outside of them."""
        moment_us = self.moment_of(lane)
        if moment_us is not None:
            if bounds.start == bounds.end:
                return bounds.start
            # The log may have grown since its bounds were seen.
            found = min(reader.find_time(lane, moment_us), bounds.end)
            if found == bounds.end and self.fails_behind:
                raise InvalidRequest(
                    f"no message of {lane} is as young as the option `{self.option}` asks for"
                )
            return found
        offset = self.lanes.get(lane, self.common)
        return {EARLIEST: bounds.start, LATEST: bounds.end}.get(offset, offset)


def _fails_behind(options: SourceOptions) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    word = options.text(name) or "latest"
    if word not in ("error", "latest"):
        raise InvalidRequest(f"the option `{name}` is error or latest, not {word!r}")
    return word == "error"


def _parsed(option: str, text: str, number: _Number) -> Iterable[tuple[Lane, int]]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        words = '"earliest", "latest" or ' if number is _offset else ""
        raise InvalidRequest(
            f'the option `{option}` is {words}JSON such as {{"orders":{{"0":23}}}}, not {text!r}'
        )
    for topic, partitions in document.items():
        for partition, given in _pairs(option, f"topic {topic}", partitions):
            if not _PARTITION.fullmatch(partition):
                raise InvalidRequest(f"the option `{option}` has a partition {partition!r}: it is a number")
            for priority, offset in _by_lane(option, f"partition {partition} of {topic}", given, number):
                yield Lane(topic, int(partition), priority), offset


def _by_lane(option: str, where: str, given: Any, number: _Number) -> Iterable[tuple[Priority, int]]:
    if not isinstance(given, dict):
        offset = number(option, where, given)
        # An offset counts in one priority; a word, or a moment, means something in all of them.
        is_one = number is _offset and offset >= 0
        return [("normal", offset)] if is_one else [(priority, offset) for priority in PRIORITIES]
    for priority in given:
        if priority not in PRIORITIES:
            raise InvalidRequest(
                f"the option `{option}` has the priority {priority!r}: use {', '.join(PRIORITIES)}"
            )
    return [(priority, number(option, where, offset)) for priority, offset in given.items()]


def _pairs(option: str, where: str, given: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(given, dict):
        raise InvalidRequest(f"the option `{option}` has no offsets by partition for {where}")
    return given.items()


def _offset(option: str, where: str, given: Any) -> int:
    if type(given) is not int or not EARLIEST <= given <= OFFSET_MAX:
        raise InvalidRequest(
            f"the option `{option}` has {given!r} for {where}: use an offset, -2 (earliest), -1 (latest)"
        )
    return given


def _milliseconds(option: str, where: str, given: Any) -> int:
    if type(given) is not int or not 0 <= given < MS_MAX:
        raise InvalidRequest(f"the option `{option}` has {given!r} for {where}: use unix milliseconds")
    return given * 1000


# The ending offsets of whoever wants every use of a DataFrame to read the same.
NOW = "now"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The ranges of a batch. Can be pickled."""

    parts: tuple[Range, ...]

    @classmethod
    def take(cls, options: SourceOptions, reader: MessageReader) -> "Snapshot":
        """Look at every topic once. Raises InvalidRequest, TopicNotFound, and OffsetOutOfRange."""
        subscription = TopicSelection.of(options)
        starting, ending = bounds_of(options)
        topics = subscription.topics(origins := reader.origins(), origins)
        subscription.check_all(topics)
        views = {topic: subscription.lanes_of(reader.look(topic)) for topic in topics}
        lanes = {lane: bounds for view in views.values() for lane, bounds in view.lanes.items()}
        subscription.check_partitions(lanes)
        starting.check_known(lanes)
        ending.check_known(lanes)
        fails = options.flag("failOnDataLoss", default=True)
        parts = (
            range_of(reader, lane, bounds, starting, ending, fails)._replace(
                created_us=views[lane.topic].created_us
            )
            for lane, bounds in lanes.items()
        )
        return cls(tuple(parts))

    def ranges(self, reader: MessageReader, *, fails: bool) -> Iterator[Range]:
        """What is to be read now. Raises Conflict for a topic that is another one by now."""
        topics = dict.fromkeys(each.lane.topic for each in self.parts)
        views = {topic: reader.look(topic) for topic in topics}
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
    reader: MessageReader,
    lane: Lane,
    bounds: LaneBounds,
    starting: Positions,
    ending: Positions,
    fails: bool,
) -> Range:
    """What the options ask for of a lane that holds what `bounds` say."""
    since_us, until_us = starting.moment_of(lane), ending.moment_of(lane)
    start = starting.resolve(reader, lane, bounds)
    # Behind the first message that is too young others may follow that are not.
    end = ending.resolve(reader, lane, bounds) if until_us is None else bounds.end
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
    size = bounds.bytes * max(0, end - start) // max(1, bounds.end - bounds.start)
    return each._replace(start=start, end=max(start, end), size_bytes=size)


# Every share looks at every topic once.
SHARES_MAX = 8


@dataclass(frozen=True, slots=True)
class LateShare:
    """A share of what lies behind a plan. Can be pickled."""

    ends: dict[Lane, int]
    created_us: dict[str, int]
    share: int
    shares: int

    def ranges(self, options: SourceOptions, reader: MessageReader) -> Iterator[Range]:
        """What is there now and was not planned. Raises Conflict for a topic that was made again."""
        subscription = TopicSelection.of(options)
        origins = reader.origins() if subscription.is_open else NO_ORIGINS
        for topic in subscription.topics(origins or subscription.names, origins):
            try:
                view = subscription.lanes_of(reader.look(topic))
            except TopicNotFound:
                continue  # Whoever reads what was planned of it is told.
            if self.created_us.get(topic, view.created_us) != view.created_us:
                raise Conflict(
                    f"the topic {topic} was deleted and made again: load it, or make the view, anew"
                )
            yield from self._of_topic(options, reader, view)

    def _of_topic(
        self, options: SourceOptions, reader: MessageReader, view: TopicExtent
    ) -> Iterator[Range]:
        starting, ending = bounds_of(options)
        fails = options.flag("failOnDataLoss", default=True)
        for lane, bounds in view.lanes.items():
            if zlib.crc32(f"{lane.topic}/{lane.partition}".encode()) % self.shares != self.share:
                continue
            if lane in self.ends and self.ends[lane] >= bounds.end:
                continue
            part = range_of(reader, lane, bounds, starting, ending, fails)
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
