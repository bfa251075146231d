"""What is in flight: who has which message of a group, in which attempt, and until when."""

from collections.abc import Iterable, Iterator

from quivermq.engine.hosted import Hosted
from quivermq.errors import InvalidRequest
from quivermq.model.deliveries import InFlight
from quivermq.model.lanes import LANE_NUMBERS, LANES


def check_after(after: object) -> None:
    """Raise InvalidRequest unless it is where a list of these can go on."""
    if after is not None and not isinstance(after, InFlight):
        raise InvalidRequest(f"after is the last one of `deliveries` that you have, not {after!r:.80}")


def in_flight(
    topics: Iterable[Hosted], group: str, now_us: int, limit: int, after: InFlight | None
) -> Iterator[InFlight]:
    """By topic, partition, lane and offset, those behind `after`; of each lane `limit` at most."""
    begin = ("", -1, -1, -1)
    if after is not None:
        begin = after.topic, after.partition, LANE_NUMBERS[after.priority], after.offset
    for hosted in sorted(topics, key=lambda each: each.name):
        found = hosted.groups.get(group)
        for cursor in () if found is None else found.cursors:
            for lane, priority in enumerate(LANES):
                place = hosted.name, cursor.partition, lane
                if place < begin[:3]:
                    continue
                behind = begin[3] if place == begin[:3] else -1
                for held in cursor.held(lane, now_us, behind, limit):
                    yield InFlight(
                        hosted.name,
                        cursor.partition,
                        priority,
                        held.offset,
                        held.attempt,
                        held.owner,
                        held.time_us,
                        held.first_us,
                        held.last_us,
                    )
