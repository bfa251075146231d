"""Dead letters: what a message says about its end, written into and read from its headers."""

import re
from typing import NamedTuple

from quivermq.frame import Record
from quivermq.topic.partition import LANE_NUMBERS, LANES

STORY_PREFIX = "quiver-dlq-"
STORY_NAMES = (
    "topic",
    "partition",
    "priority",
    "offset",
    "timestamp",
    "attempts",
    "reason",
    "error",
    "group",
    "time",
)
_REASON_BYTES_MAX = 256
_ERROR_BYTES_MAX = 4096
# More than all of it takes.
STORY_BYTES = 6 * 1024


_NUMBER = re.compile(rb"-?[0-9]{1,19}")


class Verdict(NamedTuple):
    """Why a message is given up."""

    attempts: int
    reason: str
    error: str = ""


class Origin(NamedTuple):
    """Where a message came from."""

    topic: str
    partition: int
    lane: int
    group: str


def dead_letter_headers(record: Record, origin: Origin, verdict: Verdict, now_us: int) -> dict[str, bytes]:
    """The headers of a message and, behind them, the story of its end."""
    story = (
        origin.topic,
        origin.partition,
        LANES[origin.lane],
        record.offset,
        record.timestamp,
        verdict.attempts,
        _cut(verdict.reason, _REASON_BYTES_MAX),
        _cut(verdict.error, _ERROR_BYTES_MAX),
        origin.group,
        now_us,
    )
    told = {STORY_PREFIX + name: _encoded(item) for name, item in zip(STORY_NAMES, story, strict=True)}
    return {**record.headers, **told}


def _cut(text: str, bytes_max: int) -> str:
    return _encoded(text)[:bytes_max].decode(errors="ignore")


def _encoded(item: object) -> bytes:
    # What a handler said about its failure may hold anything.
    return str(item).encode(errors="backslashreplace")


class DeadLetter(NamedTuple):
    """A message that was given up, as it lies in the dead-letter topic."""

    id: str
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    topic: str
    partition: int
    priority: str
    offset: int
    timestamp: int
    attempts: int
    reason: str
    error: str
    group: str
    time: int

    @property
    def original_headers(self) -> dict[str, bytes]:
        """The headers that the message had before it was given up."""
        return {name: v for name, v in self.headers.items() if not is_story(name)}


def is_story(header: str) -> bool:
    """Whether a header was added when the message was given up."""
    return header.startswith(STORY_PREFIX) and header.removeprefix(STORY_PREFIX) in STORY_NAMES


def dead_letter(record: Record, partition: int, lane: int, fallback_topic: str) -> DeadLetter:
    """A record of a dead-letter topic. One that somebody put there by hand has less to tell."""
    told = {name: record.headers.get(STORY_PREFIX + name, b"") for name in STORY_NAMES}
    priority = told["priority"].decode(errors="replace")
    return DeadLetter(
        id=f"{partition}-{lane}-{record.offset}",
        value=record.value,
        key=record.key,
        headers=record.headers,
        topic=told["topic"].decode(errors="replace") or fallback_topic,
        partition=_number(told["partition"], 0),
        priority=priority if priority in LANE_NUMBERS else "normal",
        offset=_number(told["offset"], record.offset),
        timestamp=_number(told["timestamp"], record.timestamp),
        attempts=_number(told["attempts"], 0),
        reason=told["reason"].decode(errors="replace"),
        error=told["error"].decode(errors="replace"),
        group=told["group"].decode(errors="replace"),
        time=_number(told["time"], record.timestamp),
    )


def _number(text: bytes, fallback: int) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else fallback
    return number if abs(number) < 2**62 else fallback
