"""What earlier attempts of a task have written, looked for in the log. Raises where nobody can tell."""

from collections.abc import Iterator

from quivermq.errors import Conflict, NotFound, OffsetOutOfRange
from quivermq.frame import Frame
from quivermq.spark.place import Lane, Place
from quivermq.spark.sink.written import WrittenRows
from quivermq.topic.put import FirstFrame, ProducerState

# Between the clocks of the driver and of the broker.
_SKEW_US = 10 * 60 * 1_000_000

WAY_OUT = (
    "so nobody can tell which rows of this batch are in the topic. To go on, look there, then start the"
    " query with a new checkpoint (a plain write with another writeId) and give it only what is missing"
)


def check_remembered(state: ProducerState, begun_us: int, *, is_repeated: bool) -> None:
    """Raise NotFound when the topic may have forgotten what this attempt is to go on with.

    `begun_us` is when the first attempt was begun, or before that.
    """
    if is_repeated and state.epoch == 0 and state.known_since_us > begun_us - _SKEW_US:
        raise NotFound(
            "an earlier attempt of this task may have written something, and so many producers came since"
            f" that the topic has forgotten it, {WAY_OUT}. Write in fewer tasks, as with .coalesce(…)"
        )


def read_back(place: Place, topic: str, producer_id: int, firsts: list[FirstFrame]) -> WrittenRows:
    """The messages that earlier attempts have written, all of which came before this one began.

    Raises NotFound where some of them may be gone.
    """
    written = WrittenRows()
    if not firsts:
        return written
    _check_live(place, topic, firsts)
    lanes = place.lanes(topic)
    for partition, priority, first in firsts:
        lane = Lane(topic, partition, priority)
        try:
            for frame in _whole(place, lane, first, lanes[lane].end):
                if frame.header.producer_id == producer_id:
                    written.add(frame, partition, priority)
        except OffsetOutOfRange as error:
            raise _gone(lane, first) from error
    # If retention came in between, some of it was read from the archive, and looked as if of nobody.
    _check_live(place, topic, firsts)
    return written


def check_compacted(unknown: int, written: WrittenRows, topic: str) -> None:
    """Raise Conflict when rows would be written that compaction may have taken out.

    `unknown` is how many rows were not found. If they are as many as were taken out, it is these, and
    nothing is missing. If not, some may be old values of their keys, which must not become the latest.
    """
    if unknown != written.removed:
        raise Conflict(
            f"compaction has taken {written.removed} messages out of what an earlier attempt of this batch"
            f" wrote to {topic}, and {unknown} rows are not found, {WAY_OUT}. Compact a topic while no"
            " query that writes to it stands still in the middle of a batch"
        )


def _check_live(place: Place, topic: str, firsts: list[FirstFrame]) -> None:
    """Raise NotFound unless everything is in the live log: an archive does not tell who sent it."""
    lanes = place.lanes(topic)
    for partition, priority, first in firsts:
        lane = Lane(topic, partition, priority)
        if first < lanes[lane].start:
            raise _gone(lane, first)


def _whole(place: Place, lane: Lane, start: int, end: int) -> Iterator[Frame]:
    """The frames of a range. Raises NotFound where an offset is in none: a dead letter that went back."""
    for frame in place.frames(lane, start, end):
        if frame.header.base_offset > start:
            break
        yield frame
        start = frame.header.end_offset
    if start < end:
        raise NotFound(
            f"an earlier attempt of this batch wrote to {lane}, and messages were taken out there, at"
            f" offset {start}, {WAY_OUT}"
        )


def _gone(lane: Lane, first: int) -> NotFound:
    return NotFound(
        f"an earlier attempt of this batch wrote to {lane}, from offset {first} on, and retention has"
        f" removed some of it, {WAY_OUT}. Let the topic keep messages for longer than a query stands still"
    )
