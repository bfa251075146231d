"""Where reading begins and ends, as options say it: earliest, latest, by offset, or by time.

Offsets are JSON as Spark's Kafka source has it, `{"orders": {"0": 23, "1": -2}}`, with -2 for the earliest
and -1 for the latest. A partition may also be an object with an offset for each priority,
`{"orders": {"0": {"high": 5, "normal": 23}}}`. A plain offset is meant for the priority `normal`; -2 and -1
are for all. What is not named is read from the earliest and up to the latest: nothing is left out
unless somebody says so.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from quivermq.errors import InvalidRequest
from quivermq.frame import OFFSET_MAX
from quivermq.spark.options import MS_MAX, SourceOptions
from quivermq.spark.place import NORMAL, Lane, LaneBounds, Place
from quivermq.topic.partition import LANES

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

    def resolve(self, place: Place, lane: Lane, bounds: LaneBounds) -> int:
        """The offset in a lane that holds what `bounds` say. One that was named may lie outside of them."""
        moment_us = self.moment_of(lane)
        if moment_us is not None:
            if bounds.start == bounds.end:
                return bounds.start
            # The log may have grown since its bounds were seen.
            found = min(place.find_time(lane, moment_us), bounds.end)
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


def _by_lane(option: str, where: str, given: Any, number: _Number) -> Iterable[tuple[str, int]]:
    if not isinstance(given, dict):
        offset = number(option, where, given)
        # An offset counts in one priority; a word, or a moment, means something in all of them.
        is_one = number is _offset and offset >= 0
        return [(NORMAL, offset)] if is_one else [(priority, offset) for priority in LANES]
    for priority in given:
        if priority not in LANES:
            raise InvalidRequest(
                f"the option `{option}` has the priority {priority!r}: use {', '.join(LANES)}"
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
