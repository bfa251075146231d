"""From lanes to tasks, and from a task to its rows.

Everything that knows where the messages of a lane lie goes through two functions: `held`, which tells what
offsets there are, and `rows_of`, which reads some of them.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from quivermq.errors import Conflict, OffsetOutOfRange, TopicNotFound
from quivermq.frame import Frame, Header
from quivermq.spark.place import NOTHING, Lane, Place
from quivermq.topic.offsets import OffsetSet

if TYPE_CHECKING:
    import pyarrow as pa


_EARLIEST_US, _LATEST_US = -(2**63), 2**63 - 1


class TimeRange(NamedTuple):
    """Moments in unix microseconds, half-open."""

    since_us: int = _EARLIEST_US
    until_us: int = _LATEST_US

    @property
    def are_all(self) -> bool:
        return self == ALL_TIMES

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


class Strict:
    """A place in which a range that is not all there is an error that says what to do."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        try:
            yield from self._place.frames(lane, start, end)
        except OffsetOutOfRange as error:
            raise gone(lane, start, end, held=(error.start, error.end)) from None

    def removed(self, lane: Lane) -> OffsetSet:
        return self._place.removed(lane)


class Lenient:
    """A place in which what is gone is skipped, with a warning in the log of the executor."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        while start < end:
            try:
                for frame in self._place.frames(lane, start, end):
                    yield frame
                    start = max(start, frame.header.end_offset)
                return
            except OffsetOutOfRange as error:
                following = error.start if error.start > start else end
                logger.warning(
                    "%s",
                    gone(
                        lane, start, min(following, end), held=(error.start, error.end), what="are skipped"
                    ),
                )
                start = following
            except TopicNotFound as error:
                logger.warning("offsets [%d, %d) of %s are skipped: %s", start, end, lane, error)
                return

    def removed(self, lane: Lane) -> OffsetSet:
        return self._place.removed(lane)


# About as much as a core reads in a second: many tasks for a large lane, and not too many.
TASK_BYTES = 64 * 1024 * 1024
# Ranges this small share a task, which costs as much as reading thousands of messages.
_SMALL_BYTES = 1024 * 1024
# Where only offsets are known, and not what they take.
_TASK_ROWS = 500_000
_SMALL_ROWS = 10_000


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
    place: Place, part: Range, columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator["pa.RecordBatch"]:
    """The messages of a range, in order.

    Raises TopicNotFound or Conflict when the topic is gone or another one by now, and OffsetOutOfRange for
    what is gone of it; unless `fail_on_data_loss`, that is skipped with a warning.
    """
    try:
        _check_same(place, part)
    except (TopicNotFound, Conflict) as error:
        if fail_on_data_loss:
            raise
        logger.warning("offsets [%d, %d) of %s are skipped: %s", part.start, part.end, part.lane, error)
        return
    # The moments are compared with a column, whether it was asked for or not.
    is_cut = not part.times.are_all
    names = [*columns, "timestamp"] if is_cut and "timestamp" not in columns else list(columns)
    for batch in _batches(place, part, names, fail_on_data_loss=fail_on_data_loss):
        cut = part.times.cut(batch)
        if cut.num_rows:
            yield cut.select(list(columns)) if len(names) > len(columns) else cut


def _batches(
    place: Place, part: Range, columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator["pa.RecordBatch"]:
    # Here, because whoever exports as text needs the ranges, and has no pyarrow.
    from quivermq.spark.batches import record_batches

    guarded = Strict(place) if fail_on_data_loss else Lenient(place)
    start = part.start
    if part.begins_by_word:
        start = max(start, min(place.lanes(part.lane.topic).get(part.lane, NOTHING).start, part.end))
    start, archived = place.archived_rows(part.lane, start, part.end, columns)
    yield from archived
    wanted = None if part.times.are_all else part.times.may_have
    yield from record_batches(guarded, part.lane, start, part.end, columns, wanted=wanted)


def _check_same(place: Place, part: Range) -> None:
    if place.created_us(part.lane.topic) != part.created_us:
        raise Conflict(f"the topic {part.lane.topic} was deleted and made again while it was read")


def tasks_by_size(ranges: Iterable[Range], tasks_min: int | None = None) -> list[list[Range]]:
    """Ranges cut and put together so that each task has about the same to read."""
    ranges = [part for part in ranges if part.start < part.end]
    if not tasks_min:
        return _tasks(ranges, [part.size_bytes for part in ranges], TASK_BYTES, _SMALL_BYTES)
    sizes = [max(1, part.size_bytes) for part in ranges]
    return _tasks(ranges, sizes, _share(sum(sizes), tasks_min, TASK_BYTES), 0)


def tasks_by_rows(ranges: Iterable[Range], tasks_min: int | None = None) -> list[list[Range]]:
    """The same by offsets alone: nothing else than the ranges decides, so a second time gives the same."""
    ranges = [part for part in ranges if part.start < part.end]
    rows = [part.end - part.start for part in ranges]
    if not tasks_min:
        return _tasks(ranges, rows, _TASK_ROWS, _SMALL_ROWS)
    return _tasks(ranges, rows, _share(sum(rows), tasks_min, _TASK_ROWS), 0)


def _share(total: int, tasks_min: int, largest: int) -> int:
    return max(1, min(total // tasks_min, largest))


def _tasks(ranges: list[Range], sizes: list[int], largest: int, small: int) -> list[list[Range]]:
    """Cut what is larger than `largest`; let about ten that are smaller than `small` share a task."""
    tasks: list[list[Range]] = []
    shared: list[Range] = []
    shared_size = 0
    for part, size in zip(ranges, sizes, strict=True):
        if size >= small:
            tasks += [[piece] for piece in _cut(part, -(-size // largest))]
            continue
        if shared_size + size > 10 * small:
            tasks.append(shared)
            shared, shared_size = [], 0
        shared.append(part)
        shared_size += size
    return [*tasks, shared] if shared else tasks


def _cut(part: Range, pieces: int) -> Iterator[Range]:
    """A range as so many pieces of about the same length, each with at least one offset."""
    rows = part.end - part.start
    pieces = max(1, min(pieces, rows))
    edges = [part.start + rows * place // pieces for place in range(pieces + 1)]
    for start, end in pairwise(edges):
        size = part.size_bytes * (end - start) // rows
        yield part._replace(start=start, end=end, size_bytes=size)
