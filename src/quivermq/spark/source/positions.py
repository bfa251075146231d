"""Where reading begins and ends, as options say it: earliest, latest, by offset, or by time.

Offsets are JSON as Spark's Kafka source has it, `{"orders": {"0": 23, "1": -2}}`, with -2 for the earliest
and -1 for the latest. A partition may also be an object with an offset for each priority,
`{"orders": {"0": {"high": 5, "normal": 23}}}`. A plain offset is meant for the priority `normal`; -2 and -1
are for all. What is not named is read from the earliest and up to the latest: nothing is left out
unless somebody says so.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from quivermq.errors import InvalidRequest
from quivermq.frame import OFFSET_MAX
from quivermq.spark.options import Options
from quivermq.spark.place import NORMAL, Bounds, Lane, Place
from quivermq.topic.partition import LANES

EARLIEST, LATEST = -2, -1

_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class Positions:
    """A place in every lane: one for all, where `lanes` has no other; or the moment it is found by."""

    option: str
    common: int
    lanes: dict[Lane, int]
    moment_us: int | None = None

    @classmethod
    def of(
        cls, options: Options, which: Literal["starting", "ending"], *, default: str, unnamed: str
    ) -> "Positions":
        """What `…Offsets` or `…Timestamp` say. Raises InvalidRequest when both do, or one is wrong."""
        name, time_name = f"{which}Offsets", f"{which}Timestamp"
        text, moment_us = options.text(name), options.moment_us(time_name)
        if text is not None and moment_us is not None:
            raise InvalidRequest(f"give `{name}` or `{time_name}`, not both")
        if moment_us is not None:
            return cls(time_name, _WORDS[unnamed], {}, moment_us)
        text = default if text is None else text
        if text.lower() in _WORDS:
            return cls(name, _WORDS[text.lower()], {})
        return cls(name, _WORDS[unnamed], dict(_parsed(name, text)))

    def refuse(self, word: Literal["earliest", "latest"], reason: str) -> None:
        """Raise InvalidRequest when some lane is to be at a place that makes no sense."""
        if self.moment_us is None and _WORDS[word] in (self.common, *self.lanes.values()):
            raise InvalidRequest(f"the option `{self.option}` cannot be {word}: {reason}")

    def check_known(self, lanes: Iterable[Lane]) -> None:
        """Raise InvalidRequest when a lane is named whose partition is not read."""
        known = {lane[:2] for lane in lanes}
        for lane in self.lanes:
            if lane[:2] not in known:
                raise InvalidRequest(
                    f"the option `{self.option}` names partition {lane.partition} of {lane.topic},"
                    " which is not among what is subscribed to"
                )

    def is_word(self, lane: Lane) -> bool:
        """Whether the place is the earliest or the latest there is, and no offset in particular."""
        return self.moment_us is None and self.lanes.get(lane, self.common) < 0

    def is_offset(self, lane: Lane) -> bool:
        """Whether the place is an offset that somebody named."""
        return self.moment_us is None and not self.is_word(lane)

    def resolve(self, place: Place, lane: Lane, bounds: Bounds) -> int:
        """The offset in a lane that holds what `bounds` say. One that was named may lie outside of them."""
        if self.moment_us is not None:
            if bounds.start == bounds.end:
                return bounds.start
            # The log may have grown since its bounds were seen.
            return min(place.find_time(lane, self.moment_us), bounds.end)
        offset = self.lanes.get(lane, self.common)
        return {EARLIEST: bounds.start, LATEST: bounds.end}.get(offset, offset)


def _parsed(option: str, text: str) -> Iterable[tuple[Lane, int]]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise InvalidRequest(
            f'the option `{option}` is "earliest", "latest" or JSON such as {{"orders":{{"0":23}}}},'
            f" not {text!r}"
        )
    for topic, partitions in document.items():
        for partition, given in _pairs(option, f"topic {topic}", partitions):
            if not (partition.isascii() and partition.isdigit()):
                raise InvalidRequest(f"the option `{option}` has a partition {partition!r}: it is a number")
            for priority, offset in _by_lane(option, f"partition {partition} of {topic}", given):
                yield Lane(topic, int(partition), priority), offset


def _by_lane(option: str, where: str, given: Any) -> Iterable[tuple[str, int]]:
    if not isinstance(given, dict):
        offset = _offset(option, where, given)
        return [(NORMAL, offset)] if offset >= 0 else [(priority, offset) for priority in LANES]
    for priority in given:
        if priority not in LANES:
            raise InvalidRequest(
                f"the option `{option}` has the priority {priority!r}: use {', '.join(LANES)}"
            )
    return [(priority, _offset(option, where, offset)) for priority, offset in given.items()]


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
