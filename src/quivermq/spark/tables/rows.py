"""Rows of the tables that are small: what a place tells of its groups and its segments."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from quivermq.errors import InvalidRequest
from quivermq.spark.place import Place


class GroupRow(NamedTuple):
    """A group in one lane. `cursor` is the first offset that is not finished, None where it never was.

    `position` is the next one that nobody of the group had; `lag` is how many there are from there on.
    `state` and `members` are known to a broker only.
    """

    topic: str
    partition: int
    priority: str
    group: str
    cursor: int | None
    position: int
    start: int
    end: int
    lag: int
    in_flight: int
    retrying: int
    waiting_for_key: int
    state: str | None = None
    members: int | None = None


class DeliveryRow(NamedTuple):
    """A message that a group was given and has not finished: with somebody until `deadline`, or `due`."""

    topic: str
    partition: int
    priority: str
    group: str
    offset: int
    attempt: int
    state: str
    deadline: int | None
    due: int | None
    holder: str | None
    first_delivered_at: int | None
    last_delivered_at: int | None


class SegmentRow(NamedTuple):
    """A file of a lane. How many frames it has, and where it lies, only its directory tells."""

    topic: str
    partition: int
    priority: str
    base_offset: int
    end_offset: int
    bytes: int
    frames: int | None
    messages: int
    first_timestamp: int | None
    last_timestamp: int | None
    sealed: bool
    path: str | None


class State(Protocol):
    """Where the rows come from. Every method raises StorageFailed or Unreachable."""

    def groups(self, topic: str) -> list[str]:
        """The groups that have been in a topic."""
        ...

    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        """A group in each lane that is in use."""
        ...

    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        """What a group has not finished, lane by lane, by offset."""
        ...

    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        """The segments of a topic, lane by lane."""
        ...


def delivery_row(
    lane: tuple[str, int, str],
    group: str,
    offset: int,
    attempt: int,
    state: str,
    time_us: int,
    holder: str | None,
    first_us: int | None,
    last_us: int | None,
) -> DeliveryRow:
    """A row of deliveries: the time is the end of the lease, or when the message is due again."""
    if state == "in_flight":
        return DeliveryRow(*lane, group, offset, attempt, state, time_us, None, holder, first_us, last_us)
    # Due at 0 is due at once: whoever waits for others of its key has no time of its own.
    due = time_us or None
    return DeliveryRow(*lane, group, offset, attempt, state, None, due, None, first_us, last_us)


def state_of(place: Place) -> State:
    """The state of what lies at a place."""
    from quivermq.spark.broker_place import BrokerPlace
    from quivermq.spark.directory_place import DirectoryPlace

    if isinstance(place, DirectoryPlace):
        from quivermq.spark.tables.directory_state import DirectoryState

        return DirectoryState(place)
    if isinstance(place, BrokerPlace):
        from quivermq.spark.tables.broker_state import BrokerState

        return BrokerState(place)
    raise InvalidRequest(f"{place} keeps no state that could be a table")
