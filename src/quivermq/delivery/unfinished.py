"""What a group has been given and has not finished, as it is at a moment."""

from typing import NamedTuple

from quivermq.delivery.state import LaneState


class Unfinished(NamedTuple):
    """A message that somebody has until `time_us`, or that is due again at `time_us`.

    One with no attempt yet waits for the earlier ones of its key.
    """

    offset: int
    attempt: int
    is_in_flight: bool
    time_us: int


def unfinished(state: LaneState, now_us: int) -> list[Unfinished]:
    """All of a lane, by offset. A lease that is over gave its message back when it ended."""
    found = [
        Unfinished(offset, lease.attempt, lease.deadline > now_us, lease.deadline)
        for offset, lease in state.leases.items()
    ]
    found += [
        Unfinished(offset, retry.attempt, False, retry.due) for offset, retry in state.retries.items()
    ]
    found.sort()
    return found
