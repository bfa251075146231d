"""Messages that a group gave up, and the headers that describe their end."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class DeadLetterReason(NamedTuple):
    """So many messages of a topic were given up by a group for the same reason."""

    reason: str
    topic: str
    group: str
    messages: int


DLQ_HEADER_PREFIX = "quiver-dlq-"


DLQ_HEADER_NAMES = (
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
        return {name: v for name, v in self.headers.items() if not is_dlq_header(name)}


def is_dlq_header(header: str) -> bool:
    """Whether a header was added when the message was given up."""
    return (
        header.startswith(DLQ_HEADER_PREFIX) and header.removeprefix(DLQ_HEADER_PREFIX) in DLQ_HEADER_NAMES
    )


def dlq_headers(story: Sequence[object]) -> dict[str, bytes]:
    """The headers that describe a message's end; `story` has a value for each of `DLQ_HEADER_NAMES`."""
    return {
        DLQ_HEADER_PREFIX + name: _encoded(item) for name, item in zip(DLQ_HEADER_NAMES, story, strict=True)
    }


def _encoded(item: object) -> bytes:
    # What a handler said about its failure may hold anything.
    return str(item).encode(errors="backslashreplace")


def merged_reasons(reasons: Iterable[DeadLetterReason]) -> list[DeadLetterReason]:
    """The same ones together, the most frequent first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for reason in reasons:
        counts[reason[:3]] += reason.messages
    return [DeadLetterReason(*story, count) for story, count in counts.most_common()]
