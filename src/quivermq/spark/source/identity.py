"""Which message a stream has read last. Its offset does not tell when a log lost its end and grew again."""

from quivermq.errors import Conflict, Corruption, OffsetOutOfRange, TopicNotFound
from quivermq.spark.place import Lane, Place


def appended_us(place: Place, lane: Lane, offset: int) -> int | None:
    """When the message before an offset came into its log; None where that cannot be told.

    A frame may be divided, lose messages or be archived, and keeps this time.
    """
    last = offset - 1
    if last < 0:
        return None
    try:
        frame = next(iter(place.frames(lane, last, offset)), None)
    except (OffsetOutOfRange, Corruption, TopicNotFound):
        return None  # Whoever reads there is told; here nothing is to be read.
    # A repair or a compaction may have left nothing there, and a broker shows nothing of what was removed.
    if frame is None or frame.is_control:
        return None
    header = frame.header
    return header.append_time if header.base_offset <= last < header.end_offset else None


def replaced(lane: Lane, offset: int, came_us: int, found_us: int) -> Conflict:
    """The error of a log that has other messages than those which were read."""
    return Conflict(
        f"{lane}: the message before offset {offset} was read as one that came in at {came_us} µs, and now"
        f" there is one that came in at {found_us} µs: the log lost its end and grew again, and new"
        " messages below that offset were not read; start with a new checkpoint, or set the option"
        " failOnDataLoss to false to go on without them"
    )
