"""Dead letters: what a message says about its end, written into and read from its headers.

A producer may write the same headers. So they are believed only in a frame that is marked as dead letters,
which nobody does but the queue; and which topic a dead letter is one of is not read from a header at all.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from quivermq.frame import Flag, Header
from quivermq.model.dead_letters import (
    DLQ_HEADER_NAMES,
    DLQ_HEADER_PREFIX,
    DeadLetter,
    cut_error,
    cut_reason,
    dlq_headers,
)
from quivermq.model.lanes import PRIORITIES
from quivermq.model.messages import Record
from quivermq.topic.partition import Partition

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

    partitions: Mapping[int, Partition]
    wake: Callable[[int], None]

    def number_for(self, partition: int) -> int:
        """The partition for a message of that one: the same, if it is there."""
        numbers = list(self.partitions)
        return partition if partition in self.partitions else numbers[partition % len(numbers)]


def dead_letter_headers(record: Record, origin: Origin, verdict: Verdict, now_us: int) -> dict[str, bytes]:
    """The headers of a message and, behind them, those that say why it was given up."""
    why = (
        origin.topic,
        origin.partition,
        PRIORITIES[origin.lane],
        record.offset,
        record.timestamp,
        verdict.attempts,
        cut_reason(verdict.reason),
        cut_error(verdict.error),
        origin.group,
        now_us,
    )
    return {**record.headers, **dlq_headers(why)}


def holds_dead_letters(header: Header) -> bool:
    """Whether the messages of a frame were given up, and so their headers say why."""
    return bool(header.flags & Flag.DEAD_LETTERS)


def dead_letter(record: Record, partition: int, lane: int, topic: str, *, is_marked: bool) -> DeadLetter:
    """A record of the dead-letter topic of `topic`. Unless `is_marked`, somebody put it there by hand."""
    headers = record.headers if is_marked else {}
    stated = {name: headers.get(DLQ_HEADER_PREFIX + name, b"") for name in DLQ_HEADER_NAMES}
    priority = stated["priority"].decode(errors="replace") if is_marked else PRIORITIES[lane]
    return DeadLetter(
        id=f"{partition}-{lane}-{record.offset}",
        value=record.value,
        key=record.key,
        headers=record.headers,
        topic=topic,
        partition=_number(stated["partition"], 0) if is_marked else partition,
        priority=priority if priority in PRIORITIES else "normal",
        offset=_number(stated["offset"], record.offset),
        timestamp=_number(stated["timestamp"], record.timestamp),
        attempts=_number(stated["attempts"], 0),
        reason=stated["reason"].decode(errors="replace"),
        error=stated["error"].decode(errors="replace"),
        group=stated["group"].decode(errors="replace"),
        time=_number(stated["time"], record.timestamp),
        by_hand=not is_marked,
        scheduled_id=record.scheduled_id if is_marked else None,
    )


def _number(text: bytes, fallback: int) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else fallback
    return number if abs(number) < 2**62 else fallback
