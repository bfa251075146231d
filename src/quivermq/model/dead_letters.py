"""Messages that a group gave up, and the headers that describe their end."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from quivermq.errors import InvalidRequest
from quivermq.model.lanes import Priority
from quivermq.model.messages import Message


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
_REASON_BYTES_MAX = 256
_ERROR_BYTES_MAX = 4096
# More than all of these headers take in a frame: what a dead letter may be larger than the message it was.
DLQ_HEADER_BYTES_MAX = 8 * 1024


class DeadLetter(NamedTuple):
    """A message that was given up, as it lies in the dead-letter topic."""

    id: str
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    topic: str
    partition: int
    priority: Priority
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


def dlq_headers(values: Sequence[object]) -> dict[str, bytes]:
    """The headers that describe a message's end, from a value for each of `DLQ_HEADER_NAMES`.

    A value that nobody knows is None, and gets no header.
    """
    return {
        DLQ_HEADER_PREFIX + name: _content(value)
        for name, value in zip(DLQ_HEADER_NAMES, values, strict=True)
        if value is not None
    }


def cut_reason(reason: str) -> str:
    """A reason, no longer than a header may have it."""
    return _content(reason)[:_REASON_BYTES_MAX].decode(errors="ignore")


def cut_error(error: str) -> str:
    """An error, no longer than a header may have it."""
    return _content(error)[:_ERROR_BYTES_MAX].decode(errors="ignore")


def _content(value: object) -> bytes:
    """A value as the content of a header. What a handler said about its failure may hold anything."""
    return str(value).encode(errors="backslashreplace")


def merged_reasons(reasons: Iterable[DeadLetterReason]) -> list[DeadLetterReason]:
    """The same ones together, the most frequent first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for reason in reasons:
        counts[reason[:3]] += reason.messages
    return [DeadLetterReason(*reason, count) for reason, count in counts.most_common()]


Filter = Callable[[DeadLetter], bool]

Edits = Mapping[str, Message]
"""Messages that go back in the place of dead letters, by their ids."""

NO_EDITS: Edits = {}


def check_filter(wanted: object) -> None:
    """Raise InvalidRequest unless it can choose dead letters, or is None."""
    if wanted is not None and not callable(wanted):
        raise InvalidRequest(
            f"filter is a function that takes a dead letter, not a {type(wanted).__name__}"
        )


def check_edits(edits: object) -> None:
    """Raise InvalidRequest unless these are messages by the ids of dead letters, or None.

    A message that goes back keeps its place, its time and its priority: only what is in it may be another.
    """
    if edits is None:
        return
    if not isinstance(edits, Mapping) or not all(isinstance(name, str) for name in edits):
        raise InvalidRequest(f"edits are messages by the ids of dead letters, not a {type(edits).__name__}")
    for name, message in edits.items():
        if not isinstance(message, Message):
            raise InvalidRequest(f"the edit of {name} is a Message, not a {type(message).__name__}")
        if message._replace(value=b"", key=None, headers=None) != Message(b""):
            raise InvalidRequest(
                f"the edit of {name} has a value, a key and headers only: it goes back where it came from"
            )
