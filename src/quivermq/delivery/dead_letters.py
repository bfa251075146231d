"""Dead letters: what a message says about its end, written into and read from its headers.

A producer may write the same headers. So they are believed only in a frame that is marked as dead letters,
which nobody does but the queue; and which topic a dead letter is one of is not read from a header at all.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from quivermq.frame import Flag, Header, Record
from quivermq.topic.partition import LANE_NUMBERS, LANES, Partition

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
# More than all of these headers take in a frame.
DLQ_HEADER_BYTES_MAX = 6 * 1024
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


class DeadLetterTopic(NamedTuple):
    """Where dead letters go, and how to wake those who wait for them."""

    partitions: list[Partition]
    wake: Callable[[int], None]


def dead_letter_headers(record: Record, origin: Origin, verdict: Verdict, now_us: int) -> dict[str, bytes]:
    """The headers of a message and, behind them, those that say why it was given up."""
    why = (
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
    return {**record.headers, **story_headers(why)}


def story_headers(story: Sequence[object]) -> dict[str, bytes]:
    """The headers for the items of a story, in the order of `STORY_NAMES`."""
    return {STORY_PREFIX + name: _encoded(item) for name, item in zip(STORY_NAMES, story, strict=True)}


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
    by_hand: bool = False
    """Whether somebody put it there, and nobody gave it up: then its headers are all its own."""
    scheduled_id: str | None = None
    """The id under which it waited, if it was delayed."""

    @property
    def original_headers(self) -> dict[str, bytes]:
        """The headers that the message had before it was given up."""
        if self.by_hand:
            return self.headers
        return {name: v for name, v in self.headers.items() if not is_story(name)}


def is_story(header: str) -> bool:
    """Whether a header was added when the message was given up."""
    return header.startswith(STORY_PREFIX) and header.removeprefix(STORY_PREFIX) in STORY_NAMES


def holds_dead_letters(header: Header) -> bool:
    """Whether the messages of a frame were given up, and so their headers say why."""
    return bool(header.flags & Flag.DEAD_LETTERS)


def dead_letter(record: Record, partition: int, lane: int, topic: str, *, is_marked: bool) -> DeadLetter:
    """A record of the dead-letter topic of `topic`. Unless `is_marked`, somebody put it there by hand."""
    if not is_marked:
        return DeadLetter(
            id=f"{partition}-{lane}-{record.offset}",
            value=record.value,
            key=record.key,
            headers=record.headers,
            topic=topic,
            partition=partition,
            priority=LANES[lane],
            offset=record.offset,
            timestamp=record.timestamp,
            attempts=0,
            reason="",
            error="",
            group="",
            time=record.timestamp,
            by_hand=True,
        )
    stated = {name: record.headers.get(STORY_PREFIX + name, b"") for name in STORY_NAMES}
    priority = stated["priority"].decode(errors="replace")
    return DeadLetter(
        id=f"{partition}-{lane}-{record.offset}",
        value=record.value,
        key=record.key,
        headers=record.headers,
        topic=topic,
        partition=_number(stated["partition"], 0),
        priority=priority if priority in LANE_NUMBERS else "normal",
        offset=_number(stated["offset"], record.offset),
        timestamp=_number(stated["timestamp"], record.timestamp),
        attempts=_number(stated["attempts"], 0),
        reason=stated["reason"].decode(errors="replace"),
        error=stated["error"].decode(errors="replace"),
        group=stated["group"].decode(errors="replace"),
        time=_number(stated["time"], record.timestamp),
        scheduled_id=record.scheduled_id,
    )


def _number(text: bytes, fallback: int) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else fallback
    return number if abs(number) < 2**62 else fallback
