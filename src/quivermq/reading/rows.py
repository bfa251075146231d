"""The messages of a range of a lane as rows, with or without those that are gone by now."""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from quivermq.errors import Conflict, InvalidRequest, OffsetOutOfRange, TopicNotFound
from quivermq.frame import OFFSET_MAX, Frame, Header
from quivermq.model.lanes import Lane
from quivermq.model.operations import NOTHING
from quivermq.reading.reader import MessageReader

if TYPE_CHECKING:
    import pyarrow as pa


# An offset, a moment with a time zone, or None for as far as it goes.
Bound = int | datetime | None


def check_bounds(start: Bound, end: Bound) -> None:
    """Raise InvalidRequest for bounds that nobody can mean."""
    for bound in (start, end):
        if isinstance(bound, datetime):
            if bound.tzinfo is None:
                raise InvalidRequest(f"{bound} has no time zone: give it one, as datetime.UTC")
        elif bound is not None and (type(bound) is not int or not 0 <= bound <= OFFSET_MAX):
            raise InvalidRequest(f"a range is between offsets from 0 on, or moments, not {bound!r}")
    are_offsets_backwards = isinstance(start, int) and isinstance(end, int) and start > end
    are_moments_backwards = isinstance(start, datetime) and isinstance(end, datetime) and start > end
    if are_offsets_backwards or are_moments_backwards:
        raise InvalidRequest(f"the range ends at {end}, before it begins at {start}")


_EARLIEST_US, _LATEST_US = -(2**63), 2**63 - 1


class TimeRange(NamedTuple):
    """Moments in unix microseconds, half-open."""

    since_us: int = _EARLIEST_US
    until_us: int = _LATEST_US

    @property
    def are_all(self) -> bool:
        return self == ALL_TIMES

    def __contains__(self, moment_us: object) -> bool:
        assert isinstance(moment_us, int)
        return self.since_us <= moment_us < self.until_us

    def holds(self, moments_us: Any) -> Any:
        """The same of each of many, which are a NumPy array."""
        return (moments_us >= self.since_us) & (moments_us < self.until_us)

    def may_have(self, header: Header) -> bool:
        """Whether a message of a frame can lie between the moments."""
        return header.timestamp_max >= self.since_us and header.timestamp_min < self.until_us

    def cut(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The rows of a batch, which has a column timestamp, that lie between the moments."""
        if self.are_all:
            return batch
        import pyarrow as pa
        import pyarrow.compute as pc

        stamps = batch.column("timestamp").view(pa.int64())
        inside = pc.and_(
            pc.greater_equal(stamps, pa.scalar(self.since_us)), pc.less(stamps, pa.scalar(self.until_us))
        )
        return batch.filter(inside)


ALL_TIMES = TimeRange()


logger = logging.getLogger(__name__)

_ADVICE = (
    "keep messages for longer (retention_ms, retention_bytes of the topic), read more often,"
    " or set the option failOnDataLoss to false to go on with what is left"
)


def gone(
    lane: Lane, start: int, end: int, *, held: tuple[int, int], what: str = "are gone"
) -> OffsetOutOfRange:
    """The error for offsets that were to be read and are not there."""
    error = OffsetOutOfRange(start, start=held[0], end=held[1])
    # With everything that its reader has to know; a traceback does not show fields.
    error.args = (
        f"offsets [{start}, {end}) of {lane} {what}: the log now holds [{held[0]}, {held[1]}); {_ADVICE}",
    )
    return error


class GuardedFrames:
    """The frames of a reader. What is gone is an error that says what to do, or skipped with a warning."""

    def __init__(self, reader: MessageReader, *, fail_on_data_loss: bool) -> None:
        self._reader = reader
        self._fails = fail_on_data_loss
        self.removed = reader.removed

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        first = start
        while start < end:
            try:
                for frame in self._reader.frames(lane, start, end):
                    yield frame
                    start = max(start, frame.header.end_offset)
                return
            except OffsetOutOfRange as error:
                held = (error.start, error.end)
                if self._fails:
                    raise gone(lane, first, end, held=held) from None
                following = error.start if error.start > start else end
                skipped = gone(lane, start, min(following, end), held=held, what="are skipped")
                logger.warning("%s", skipped)
                start = following
            except TopicNotFound as error:
                if self._fails:
                    raise
                logger.warning("offsets [%d, %d) of %s are skipped: %s", start, end, lane, error)
                return


class Range(NamedTuple):
    """Offsets of a lane, half-open, and about how many bytes they take."""

    lane: Lane
    start: int
    end: int
    size_bytes: int = 0
    created_us: int = 0
    """Which topic of that name is meant."""
    times: TimeRange = ALL_TIMES
    """Which of the messages are meant, by their timestamps."""
    begins_by_word: bool = False
    """Whether it begins at the earliest there is, wherever that has moved to."""


def rows_of(
    reader: MessageReader, part: Range, columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator["pa.RecordBatch"]:
    """The messages of a range, in order.

    Raises TopicNotFound or Conflict when the topic is gone or another one by now, and OffsetOutOfRange for
    what is gone of it; unless `fail_on_data_loss`, that is skipped with a warning.
    """
    try:
        if reader.created_us(part.lane.topic) != part.created_us:
            raise Conflict(f"the topic {part.lane.topic} was deleted and made again while it was read")
    except (TopicNotFound, Conflict) as error:
        if fail_on_data_loss:
            raise
        logger.warning("offsets [%d, %d) of %s are skipped: %s", part.start, part.end, part.lane, error)
        return
    # The moments are compared with a column, whether it was asked for or not.
    is_cut = not part.times.are_all
    names = [*columns, "timestamp"] if is_cut and "timestamp" not in columns else list(columns)
    for batch in _batches(reader, part, names, fail_on_data_loss=fail_on_data_loss):
        cut = part.times.cut(batch)
        if cut.num_rows:
            yield cut.select(list(columns)) if len(names) > len(columns) else cut


def _batches(
    reader: MessageReader, part: Range, columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator["pa.RecordBatch"]:
    # Here, because whoever exports as text needs the ranges, and has no pyarrow.
    from quivermq.reading.batches import record_batches

    guarded = GuardedFrames(reader, fail_on_data_loss=fail_on_data_loss)
    start = part.start
    if part.begins_by_word:
        start = max(start, min(reader.lanes(part.lane.topic).get(part.lane, NOTHING).start, part.end))
    start, archived = reader.archived_rows(part.lane, start, part.end, columns)
    yield from archived
    wanted = None if part.times.are_all else part.times.may_have
    yield from record_batches(guarded, part.lane, start, part.end, columns, wanted=wanted)
