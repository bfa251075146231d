"""Priorities and their lanes: a partition has one log for each priority.

Users say a priority by its name. Inside, a lane goes by its number, which is its index in every list that a
partition or a cursor keeps by lane, and what journals and receipts write. `lane_number` is the way in,
`LANES[number]` the way out.
"""

from typing import Literal

from quivermq.errors import InvalidRequest

Priority = Literal["high", "normal", "low"]

LANES: tuple[Priority, ...] = ("high", "normal", "low")
LANE_NUMBERS: dict[str, int] = {lane: number for number, lane in enumerate(LANES)}
NORMAL = LANE_NUMBERS["normal"]


def lane_number(priority: object) -> int:
    """The number of a priority's lane. Raises InvalidRequest."""
    try:
        return LANE_NUMBERS[priority]  # type: ignore[index]  # Any other type is refused right here.
    except (KeyError, TypeError):
        raise InvalidRequest(f"priority is one of {', '.join(LANES)}, not {priority!r}") from None
