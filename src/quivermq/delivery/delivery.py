"""A message in a consumer's hands, many of one lease, and giving back what an orderly stop leaves."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from quivermq.delivery.detached import Detached
from quivermq.delivery.lease import Lease, Receipt
from quivermq.errors import Closing, LeaseExpired, QuiverError
from quivermq.frame import Frame, Record
from quivermq.reentry import soon
from quivermq.topic.incoming import Period
from quivermq.topic.partition import LANES

if TYPE_CHECKING:
    from quivermq.delivery.settlement import Settlement

logger = logging.getLogger(__name__)
T = TypeVar("T")

Claim = tuple[int, int]
"""The offset of a message and the token of its lease: who has both may settle it."""


class Slice(NamedTuple):
    """Messages of one frame, from an offset up to another."""

    frame: Frame
    start: int
    end: int

    def records(self) -> list[Record]:
        """Each message on its own."""
        base = self.frame.header.base_offset
        return self.frame.part(self.start - base, self.end - base)


class Taken(NamedTuple):
    """Messages of one lane that were handed out with one lease: each for itself, or as parts of frames."""

    cursor: "Settlement"
    lane: int
    lease: Lease
    records: list[Record]
    slices: list[Slice] = []  # noqa: RUF012 - Nobody changes it.

    def deliveries(self) -> Iterator["Delivery"]:
        """Each message on its own, as consumers want them."""
        records = self.records or [record for part in self.slices for record in part.records()]
        return map(Delivery, records, repeat(self.lease), repeat(self.cursor), repeat(self.lane))

    def grant(self) -> "Grant":
        """What it takes to give them back."""
        offsets: list[Sequence[int]] = [range(start, end) for _, start, end in self.slices]
        if self.records:
            offsets.append([record.offset for record in self.records])
        return Grant(self.cursor, self.lane, self.lease.token, offsets)


class Grant(NamedTuple):
    """Which messages were handed out with one lease, without keeping the messages themselves."""

    cursor: "Settlement"
    lane: int
    token: int
    offsets: list[Sequence[int]]

    def claims(self) -> list[Claim]:
        """Each message with the token that settles it."""
        return [(offset, self.token) for part in self.offsets for offset in part]

    def release(self, claims: list[Claim]) -> None:
        """Give back those that are still held. Raises Closing, and what keeps the journal from it."""
        self.cursor.release(self.lane, claims, raises=False)


def deliveries_of(taken: Iterable[Taken]) -> list["Delivery"]:
    """All messages, each on its own."""
    return [delivery for batch in taken for delivery in batch.deliveries()]


def message_count(taken: Iterable[Taken]) -> int:
    """How many messages these are."""
    return sum(len(batch.records) + sum(end - start for _, start, end in batch.slices) for batch in taken)


class Settler(Protocol):
    """Who can settle the messages of a partition for a group: its cursor, or the connection to a broker."""

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


class Delivery:
    """A message with a lease on it. Any thread may settle it, once: ack, nack, release or reject."""

    __slots__ = ("_cursor", "_lane", "_lease", "_record", "is_settled")

    def __init__(self, record: Record, lease: Lease, cursor: Settler, lane: int) -> None:
        self._record = record
        self._lease = lease
        self._cursor = cursor
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
        return self._cursor.topic

    @property
    def partition(self) -> int:
        return self._cursor.partition

    @property
    def priority(self) -> str:
        return LANES[self._lane]

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
        """The id under which it waited, as `put` told it, if it was delayed."""
        return self._record.scheduled_id

    @property
    def attempt(self) -> int:
        """Which delivery of this message to this group it is; 1 is the first."""
        return self._lease.attempt

    @property
    def is_last_attempt(self) -> bool:
        """Whether it becomes a dead letter when this attempt fails."""
        return self._cursor.is_last_attempt(self._lease)

    @property
    def receipt(self) -> str:
        """What `ack` and the others take in place of the delivery itself, also after a restart."""
        cursor = self._cursor
        receipt = Receipt(cursor.topic, cursor.partition, self._lane, self.offset, self._lease.token)
        return str(receipt)

    def ack(self) -> None:
        """The message is done with. Raises LeaseExpired when it no longer was this consumer's."""
        self._cursor.ack_one(self._lane, self._record.offset, self._lease.token)
        self.is_settled = True

    def nack(
        self, delay: Period | None = None, reason: str | None = None, *, error: str | None = None
    ) -> None:
        """It failed: try again after `delay` seconds, or after a growing wait when none is given.

        After the last attempt it becomes a dead letter. Raises LeaseExpired.
        """
        self._cursor.nack(self._lane, [(self._record.offset, self._lease.token)], delay, reason, error)
        self.is_settled = True

    def reject(self, reason: str | None = None, *, error: str | None = None) -> None:
        """It can never succeed: make it a dead letter at once. Raises LeaseExpired."""
        self._cursor.reject(self._lane, [(self._record.offset, self._lease.token)], reason, error)
        self.is_settled = True

    def release(self) -> None:
        """Give it back as if it had not been handed out: at once, and the attempt does not count.

        For whoever stops, or cannot begin: what failed is a `nack`. Raises LeaseExpired.
        """
        self._cursor.release(self._lane, [(self._record.offset, self._lease.token)])
        self.is_settled = True

    def extend(self, seconds: Period) -> None:
        """Keep the lease for so many seconds from now. Raises LeaseExpired."""
        self._cursor.extend(self._lane, [(self._record.offset, self._lease.token)], seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy for another process: `queue.ack(copy)` settles it there, as its receipt would."""
        cursor, lease = self._cursor, self._lease
        place = cursor.topic, cursor.partition, cursor.group
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


class Releases(Protocol):
    """A queue, embedded or over the wire."""

    def release(self, held: list[Delivery]) -> None: ...


def is_stop(error: BaseException) -> bool:
    """Whether an exception ends the program, a task or a loop, and so says nothing about a message.

    Those are KeyboardInterrupt, SystemExit, GeneratorExit and asyncio's CancelledError, which for this
    reason are no `Exception`.
    """
    return not isinstance(error, Exception)


def release_unsettled(
    queue: Releases,
    messages: Iterable[Delivery],
    let_go: Callable[[], None] = lambda: None,
) -> None:
    """Release what was not settled, and never fail: what cannot be given back has a lease that ends.

    `let_go` is called first: whoever renews the leases is to stop. For generators, which the garbage
    collector may close in the middle of another call: then it waits for the end of that.
    """
    held = [message for message in messages if not message.is_settled]

    def release() -> None:
        let_go()
        release_quietly(queue.release, held)

    soon(release)


def release_quietly(release: Callable[[list[T]], None], held: Sequence[T]) -> None:
    """Release messages, and only log what keeps them from it."""
    if not held:
        return
    try:
        release(list(held))
    except (LeaseExpired, Closing):
        # A lease that is lost needs no giving back.
        return
    except QuiverError as error:
        logger.warning("%d messages wait for their leases to end: %s", len(held), error)
