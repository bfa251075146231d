"""Priorities and their lanes: a partition has one log, its lane, for each priority.

Users, JSON and directories say a priority by its word. From the engine down a lane goes by its number,
which is its index in every list that a partition or a cursor keeps by lane, and what journals and receipts
write. `lane_number` is the way in, `PRIORITIES[lane]` the way out.
"""

from typing import Literal, NamedTuple, get_args

from quivermq.errors import InvalidRequest

Priority = Literal["high", "normal", "low"]

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
LANE_COUNT = len(PRIORITIES)
HIGH, NORMAL, LOW = range(LANE_COUNT)


class Lane(NamedTuple):
    """One log of the queue: a priority of a partition of a topic."""

    topic: str
    partition: int
    priority: Priority

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}, priority {self.priority}"


PartitionLane = tuple[int, int]
"""A lane of a topic that is open, by numbers: that of its partition, and its own."""

_NUMBERS: dict[str, int] = {priority: lane for lane, priority in enumerate(PRIORITIES)}


def lane_number(priority: object) -> int:
    """The number of a priority's lane. Raises InvalidRequest."""
    try:
        return _NUMBERS[priority]  # type: ignore[index]  # Any other type is refused right here.
    except (KeyError, TypeError, ValueError):
        raise InvalidRequest(f"priority is one of {', '.join(PRIORITIES)}, not {priority!r}") from None


def check_priority(priority: object) -> None:
    """Raise InvalidRequest for what is no priority."""
    lane_number(priority)


def priority_of(text: object) -> Priority:
    """The priority of that name. Raises InvalidRequest."""
    return PRIORITIES[lane_number(text)]
