"""What is taken over from another queue with its messages: progress of groups, deduplication ids."""

from collections.abc import Sequence
from dataclasses import dataclass

from quivermq.model.lanes import Priority


@dataclass(frozen=True, slots=True)
class Tried:
    """Messages [start, end), each of which was delivered `attempts` times and is not finished."""

    start: int
    end: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group came in a lane.

    `position` is an offset: what lies before it is finished but for the messages in `tried`, of which some
    may have 0 attempts. Without one, it only has the attempts of messages that nobody in the group has had
    here.
    """

    position: int | None = None
    tried: Sequence[Tried] = ()


@dataclass(frozen=True, slots=True)
class AdoptedId:
    """An id that is remembered until `expires_at`, in unix microseconds, and where its message is, if here.

    Where only the hash of the id is known, it is `sha256:` and 64 hex digits.
    """

    dedup_id: str
    expires_at: int
    partition: int = 0
    priority: Priority = "normal"
    offset: int | None = None
