"""A message in a consumer's hands, many of one lease, and giving back what an orderly stop leaves."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from quivermq.errors import Closing, LeaseExpired, QuiverError
from quivermq.frame import Frame
from quivermq.model.deliveries import Claim, Delivery, Lease
from quivermq.model.messages import Record
from quivermq.reentry import soon

if TYPE_CHECKING:
    from quivermq.delivery.settlement import Settlement


logger = logging.getLogger(__name__)
T = TypeVar("T")


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
