"""Messages on their way to a consumer, and giving back what an orderly stop leaves."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from quivermq.errors import Closing, LeaseExpired, QuiverError
from quivermq.frame import Frame
from quivermq.model.deliveries import Claim, Delivery, Lease
from quivermq.model.messages import Record

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

    settler: "Settlement"
    lane: int
    lease: Lease
    records: list[Record]
    slices: list[Slice] = []  # noqa: RUF012 - Nobody changes it.

    def deliveries(self) -> Iterator[Delivery]:
        """Each message on its own, as consumers want them."""
        records = self.records or [record for part in self.slices for record in part.records()]
        return map(Delivery, records, repeat(self.lease), repeat(self.settler), repeat(self.lane))

    def grant(self) -> "Grant":
        """What it takes to give them back."""
        offsets: list[Sequence[int]] = [range(start, end) for _, start, end in self.slices]
        if self.records:
            offsets.append([record.offset for record in self.records])
        return Grant(self.settler, self.lane, self.lease.token, offsets)


class Grant(NamedTuple):
    """Which messages were handed out with one lease, without keeping the messages themselves."""

    settler: "Settlement"
    lane: int
    token: int
    offsets: list[Sequence[int]]

    def claims(self) -> list[Claim]:
        """Each message with the token that settles it."""
        return [(offset, self.token) for part in self.offsets for offset in part]

    def give_back(self) -> None:
        """Give back those that are still held, and only log what keeps them from it."""
        release_quietly(partial(self.settler.release, self.lane, raises=False), self.claims())


def deliveries_of(taken: Iterable[Taken]) -> list[Delivery]:
    """All messages, each on its own."""
    return [delivery for batch in taken for delivery in batch.deliveries()]


def message_count(taken: Iterable[Taken]) -> int:
    """How many messages these are."""
    return sum(len(batch.records) + sum(end - start for _, start, end in batch.slices) for batch in taken)


def release_quietly(release: Callable[[list[T]], object], held: Sequence[T]) -> None:
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
