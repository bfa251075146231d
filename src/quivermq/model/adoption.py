"""What is taken over from another queue with its messages: progress of groups, deduplication ids."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tried:
    """Messages that follow each other, of which each was delivered so often, and is not finished."""

    start: int
    end: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group came in a lane.

    With a position, what lies before it is finished but for what was `tried`, also no times. Without one,
    only the attempts of messages are told that nobody in the group has had here.
    """

    position: int | None = None
    tried: Sequence[Tried] = ()


@dataclass(frozen=True, slots=True)
class AdoptedId:
    """An id that is remembered until then, in unix microseconds, and where its message is, if it is here.

    Where only the hash of the id is known, it is `sha256:` and 64 hex digits.
    """

    dedup_id: str
    expires_at: int
    partition: int = 0
    priority: str = "normal"
    offset: int | None = None
