"""A lease: who has a message, in which attempt, and until when. Its receipt is a fencing token."""

import re
from random import getrandbits
from typing import NamedTuple

from quivermq.errors import InvalidRequest
from quivermq.topic.partition import LANES

# As it is written, and no other way: whoever compares receipts compares texts.
_RECEIPT = re.compile(
    r"([A-Za-z0-9._-]{1,253}):(0|[1-9][0-9]{0,3}):([0-2]):(0|[1-9][0-9]{0,18}):(0|[1-9a-f][0-9a-f]{0,15})"
)


class Lease:
    """One delivery, of one message or of many at once.

    The token is random and not counted, so that a receipt from before a power loss, which may have taken
    the note of it, cannot be mistaken for a later one.
    """

    __slots__ = ("attempt", "deadline", "is_last", "owner", "since", "token")

    def __init__(
        self,
        attempt: int,
        deadline: int,
        token: int | None = None,
        owner: str | None = None,
        since: int = 0,
    ) -> None:
        self.attempt = attempt
        self.deadline = deadline
        self.token = getrandbits(63) if token is None else token
        self.owner = owner
        """Who has it, in words, where somebody said so. Only told, never asked for."""
        self.since = since
        """When it was handed out, in unix microseconds; 0 where only the broker knows."""
        self.is_last: bool | None = None
        """Whether no attempt follows this one, where only the broker knows; None where the cursor does."""


class Receipt(NamedTuple):
    """What a receipt says: which message, and which delivery of it."""

    topic: str
    partition: int
    lane: int
    offset: int
    token: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.lane}:{self.offset}:{self.token:x}"

    @property
    def priority(self) -> str:
        return LANES[self.lane]


class Held(NamedTuple):
    """Many messages of one lease, as flat half-open ranges of offsets: what many receipts would say."""

    topic: str
    partition: int
    lane: int
    token: int
    runs: tuple[int, ...]


def parse_receipt(text: str) -> Receipt:
    """The receipt that a text stands for. Raises InvalidRequest."""
    match = _RECEIPT.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{text[:80]!r} is not a receipt: use the one that came with the message")
    topic, partition, lane, offset, token = match.groups()
    return Receipt(topic, int(partition), int(lane), int(offset), int(token, 16))
