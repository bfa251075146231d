"""What a group has been given and has not finished, as it is at a moment."""

from collections.abc import Mapping
from heapq import nsmallest
from itertools import chain
from typing import Literal, NamedTuple

from quivermq.delivery.lease import Lease
from quivermq.delivery.retry import FOR_ITS_TURN, Retry
from quivermq.delivery.state import LaneState, Times, times_of

UnfinishedState = Literal["in_flight", "retrying", "waiting_for_key", "released"]


class Unfinished(NamedTuple):
    """A message that somebody has until `time_us`, or that is due again at `time_us`; 0 is at once."""

    offset: int
    attempt: int
    state: UnfinishedState
    time_us: int
    owner: str | None = None
    first_us: int | None = None
    """When it was delivered first, and when last; None where it never was, or nobody knows."""
    last_us: int | None = None


def unfinished(state: LaneState, now_us: int) -> list[Unfinished]:
    """All of a lane, by offset. A lease that is over gave its message back when it ended."""
    return unfinished_after(state.leases, state.retries, state.times, now_us, -1, state.unfinished)


def unfinished_after(
    leases: Mapping[int, Lease],
    retries: Mapping[int, Retry],
    times: Mapping[int, Times],
    now_us: int,
    after: int,
    limit: int,
) -> list[Unfinished]:
    """The first ones behind an offset, at most so many. Only of these more than the offset is looked at."""
    offsets = nsmallest(limit, (offset for offset in chain(leases, retries) if offset > after))
    return [
        unfinished_one(offset, leases.get(offset), retries.get(offset), times, now_us) for offset in offsets
    ]


def unfinished_one(
    offset: int, lease: Lease | None, retry: Retry | None, times: Mapping[int, Times], now_us: int
) -> Unfinished:
    """A message that has a lease, or waits."""
    delivered = times_of(offset, lease, times) or (None, None)
    if lease is not None:
        state: UnfinishedState = "in_flight" if lease.deadline > now_us else "retrying"
        return Unfinished(offset, lease.attempt, state, lease.deadline, lease.owner, *delivered)
    assert retry is not None, "an offset is in one of the two"
    if retry.attempt:
        return Unfinished(offset, retry.attempt, "retrying", retry.due, None, *delivered)
    return Unfinished(offset, 0, "waiting_for_key" if retry == FOR_ITS_TURN else "released", 0)
