"""A message in a consumer's hands, the lease on it, and the receipt that stands for both."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import getrandbits
from typing import Any, NamedTuple, NoReturn, Protocol

from quivermq.errors import InvalidRequest
from quivermq.model.checks import Period
from quivermq.model.lanes import PRIORITIES, Priority
from quivermq.model.messages import Record

# As it is written, and no other way: whoever compares receipts compares texts.
_RECEIPT = re.compile(
    r"([A-Za-z0-9._-]{1,253}):(0|[1-9][0-9]{0,3}):([0-2]):(0|[1-9][0-9]{0,18}):(0|[1-9a-f][0-9a-f]{0,15})"
)


class Lease:
    """One delivery, of one message or of many at once.

    The token is random and not counted, so that a receipt from before a power loss, which may have taken
    the note of it, cannot be mistaken for a later one.
    """

    __slots__ = ("attempt", "deadline", "holder", "is_last", "since", "token")

    def __init__(
        self,
        attempt: int,
        deadline: int,
        token: int | None = None,
        holder: str | None = None,
        since: int = 0,
    ) -> None:
        self.attempt = attempt
        self.deadline = deadline
        self.token = getrandbits(63) if token is None else token
        self.holder = holder
        """Who has it, in words, where somebody said so. For people to see: nothing depends on it."""
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
        return receipt_text(*self)

    @property
    def priority(self) -> Priority:
        return PRIORITIES[self.lane]


def receipt_text(topic: str, partition: int, lane: int, offset: int, token: int) -> str:
    """A receipt as it is written."""
    return f"{topic}:{partition}:{lane}:{offset}:{token:x}"


class Held(NamedTuple):
    """Messages of one lease: what as many receipts would say."""

    topic: str
    partition: int
    lane: int
    token: int
    offsets: Sequence[int]

    def receipts(self, offsets: Iterable[int] | None = None) -> list[str]:
        """The receipts of these messages, or of some of them."""
        chosen = self.offsets if offsets is None else offsets
        return [f"{self.topic}:{self.partition}:{self.lane}:{offset}:{self.token:x}" for offset in chosen]


def parse_receipt(text: str) -> Receipt:
    """The receipt that a text stands for. Raises InvalidRequest."""
    match = _RECEIPT.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{text[:80]!r} is not a receipt: use the one that came with the message")
    topic, partition, lane, offset, token = match.groups()
    return Receipt(topic, int(partition), int(lane), int(offset), int(token, 16))


Claim = tuple[int, int]
"""The offset of a message and the token of its lease: who has both may settle it."""


class Settler(Protocol):
    """Who settles the messages of a partition for a group: its cursor's settlement, or a broker's queue."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def group(self) -> str: ...

    def is_last_attempt(self, lease: Lease, /) -> bool: ...

    def ack_one(self, lane: int, offset: int, token: int, /) -> None: ...

    def nack(
        self,
        lane: int,
        claims: Sequence[Claim],
        delay: Period | None,
        reason: str | None,
        error: str | None,
        /,
    ) -> object: ...

    def release(self, lane: int, claims: Sequence[Claim], /) -> object: ...

    def reject(
        self, lane: int, claims: Sequence[Claim], reason: str | None, error: str | None, /
    ) -> object: ...

    def extend(self, lane: int, claims: Sequence[Claim], seconds: Period, /) -> object: ...


class Detached:
    """The settler of a delivery that was pickled: it knows its message, and cannot settle it by itself.

    The receipt still holds, for any queue of the same topic and group.
    """

    __slots__ = ("group", "partition", "topic")

    def __init__(self, topic: str, partition: int, group: str) -> None:
        self.topic = topic
        self.partition = partition
        self.group = group

    def is_last_attempt(self, lease: Lease) -> bool:
        return bool(lease.is_last)

    def ack_one(self, *_: object) -> NoReturn:
        raise self._refusal("ack")

    def nack(self, *_: object) -> NoReturn:
        raise self._refusal("nack")

    def release(self, *_: object) -> NoReturn:
        raise self._refusal("release")

    def reject(self, *_: object) -> NoReturn:
        raise self._refusal("reject")

    def extend(self, *_: object) -> NoReturn:
        raise self._refusal("extend")

    def _refusal(self, act: str) -> InvalidRequest:
        return InvalidRequest(
            f"this delivery was pickled, and has no connection: use queue.{act}(delivery) of a queue of"
            f" {self.topic} with the group {self.group}"
        )


class LeasedMessage:
    """A message with a lease on it: what deliveries of both kinds have in common."""

    __slots__ = ("_lane", "_lease", "_record", "_settler", "is_settled")

    def __init__(self, record: Record, lease: Lease, settler: Settler, lane: int) -> None:
        self._record = record
        self._lease = lease
        self._settler = settler
        self._lane = lane
        self.is_settled = False

    @property
    def value(self) -> bytes:
        return self._record.value

    @property
    def key(self) -> bytes | None:
        return self._record.key

    @property
    def headers(self) -> dict[str, bytes]:
        return self._record.headers

    @property
    def topic(self) -> str:
        return self._settler.topic

    @property
    def partition(self) -> int:
        return self._settler.partition

    @property
    def priority(self) -> Priority:
        return PRIORITIES[self._lane]

    @property
    def offset(self) -> int:
        """The message's number in its lane, that is among those of its partition and priority."""
        return self._record.offset

    @property
    def timestamp(self) -> int:
        """When it was put, in unix microseconds, unless the producer said otherwise."""
        return self._record.timestamp

    @property
    def expires_at(self) -> int | None:
        return self._record.expires_at

    @property
    def dedup_id(self) -> str | None:
        return self._record.dedup_id

    @property
    def scheduled_id(self) -> str | None:
        """The id under which it waited, as `put` returned it, if it was delayed."""
        return self._record.scheduled_id

    @property
    def attempt(self) -> int:
        """Which delivery of this message to this group it is; 1 is the first."""
        return self._lease.attempt

    @property
    def is_last_attempt(self) -> bool:
        """Whether it becomes a dead letter when this attempt fails."""
        return self._settler.is_last_attempt(self._lease)

    @property
    def receipt(self) -> str:
        """What `ack` and the others take in place of the delivery itself, also after a restart."""
        settler = self._settler
        return receipt_text(
            settler.topic, settler.partition, self._lane, self._record.offset, self._lease.token
        )


class Delivery(LeasedMessage):
    """A message in hand. Any thread may settle it, once: ack, nack, release or reject."""

    __slots__ = ()

    def ack(self) -> None:
        """The message is done with. Raises LeaseExpired when it no longer was this consumer's."""
        self._settler.ack_one(self._lane, self._record.offset, self._lease.token)
        self.is_settled = True

    def nack(
        self, delay: Period | None = None, reason: str | None = None, *, error: str | None = None
    ) -> None:
        """It failed: try again after `delay` seconds, or after a growing wait when none is given.

        After the last attempt it becomes a dead letter. Raises LeaseExpired.
        """
        self._settler.nack(self._lane, [(self._record.offset, self._lease.token)], delay, reason, error)
        self.is_settled = True

    def reject(self, reason: str | None = None, *, error: str | None = None) -> None:
        """It can never succeed: make it a dead letter at once. Raises LeaseExpired."""
        self._settler.reject(self._lane, [(self._record.offset, self._lease.token)], reason, error)
        self.is_settled = True

    def release(self) -> None:
        """Give it back as if it had not been handed out: at once, and the attempt does not count.

        For whoever stops, or cannot begin: what failed is a `nack`. Raises LeaseExpired.
        """
        self._settler.release(self._lane, [(self._record.offset, self._lease.token)])
        self.is_settled = True

    def extend(self, seconds: Period) -> None:
        """Keep the lease for so many seconds from now. Raises LeaseExpired."""
        self._settler.extend(self._lane, [(self._record.offset, self._lease.token)], seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy for another process: `queue.ack(copy)` settles it there, as its receipt would."""
        settler, lease = self._settler, self._lease
        place = settler.topic, settler.partition, settler.group
        held = lease.attempt, lease.deadline, lease.token, self.is_last_attempt
        return _unpickled, (tuple(self._record), place, held, self._lane, self.is_settled)

    def __repr__(self) -> str:
        return (
            f"<Delivery {self.topic}/p{self.partition}/{self.priority} offset {self.offset},"
            f" attempt {self.attempt}, {len(self.value)} bytes>"
        )


def _unpickled(
    record: tuple[Any, ...],
    place: tuple[str, int, str],
    held: tuple[int, int, int, bool],
    lane: int,
    is_settled: bool,
) -> Delivery:
    attempt, deadline, token, is_last = held
    lease = Lease(attempt, deadline, token)
    lease.is_last = is_last
    delivery = Delivery(Record(*record), lease, Detached(*place), lane)
    delivery.is_settled = is_settled
    return delivery


def is_stop(error: BaseException) -> bool:
    """Whether an exception ends the program, a task or a loop, and so says nothing about a message.

    Those are KeyboardInterrupt, SystemExit, GeneratorExit and asyncio's CancelledError, which for this
    reason are no `Exception`.
    """
    return not isinstance(error, Exception)


def check_reason(reason: object, error: object) -> None:
    """Raise InvalidRequest unless these can say why a message failed."""
    for given in (reason, error):
        if given is not None and not isinstance(given, str):
            raise InvalidRequest(f"a reason and an error are texts, not a {type(given).__name__}")


@dataclass(frozen=True, slots=True)
class InFlight:
    """A message that a consumer has. It is no delivery, and settles nothing."""

    topic: str
    partition: int
    priority: Priority
    offset: int
    attempt: int
    holder: str | None
    """Who has it, in words: of a broker's client its program, address and key; embedded, the process."""
    deadline: int
    """When its lease ends, in unix microseconds."""
    first_delivered_at: int | None
    """When the group was first given it, in unix microseconds."""
    last_delivered_at: int | None
    """When whoever has it now was given it."""


def check_after(after: object) -> None:
    """Raise InvalidRequest unless it is where a list of these can go on."""
    if after is not None and not isinstance(after, InFlight):
        raise InvalidRequest(f"after is the last one of `deliveries` that you have, not {after!r:.80}")
