"""What a group has been given and has not finished, as it is at a moment."""

from collections.abc import Mapping
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple

from quivermq.delivery.lease import Lease
from quivermq.delivery.retry import Retry
from quivermq.delivery.state import LaneState


class Unfinished(NamedTuple):
    """A message that somebody has until `time_us`, or that is due again at `time_us`.

    One with no attempt yet waits for the earlier ones of its key.
    """

    offset: int
    attempt: int
    is_in_flight: bool
    time_us: int
    owner: str | None = None


def unfinished(state: LaneState, now_us: int) -> list[Unfinished]:
    """All of a lane, by offset. A lease that is over gave its message back when it ended."""
    return unfinished_after(state.leases, state.retries, now_us, -1, state.unfinished)


def unfinished_after(
    leases: Mapping[int, Lease], retries: Mapping[int, Retry], now_us: int, after: int, limit: int
) -> list[Unfinished]:
    """The first ones behind an offset, at most so many. Only of these more than the offset is looked at."""
    offsets = nsmallest(limit, (offset for offset in chain(leases, retries) if offset > after))
    return [_unfinished(offset, leases.get(offset), retries.get(offset), now_us) for offset in offsets]


def _unfinished(offset: int, lease: Lease | None, retry: Retry | None, now_us: int) -> Unfinished:
    if lease is not None:
        return Unfinished(offset, lease.attempt, lease.deadline > now_us, lease.deadline, lease.owner)
    assert retry is not None, "an offset is in one of the two"
    return Unfinished(offset, retry.attempt, False, retry.due)
