"""The messages of a range, archived or not: as records, or as Arrow batches over mapped memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from quivermq.errors import Conflict, OffsetOutOfRange
from quivermq.exporting.ranges import Part
from quivermq.frame import Record, left_of
from quivermq.spark.place import Place
from quivermq.spark.source.plan import TimeRange

if TYPE_CHECKING:
    import pyarrow as pa


def records_of(place: Place, part: Part, times: TimeRange) -> Iterator[list[Record]]:
    """The messages of a range in order, frame by frame. Raises Conflict, OffsetOutOfRange, Corruption."""
    removed = place.removed(part.lane)
    start = max(part.start, min(removed.floor, part.end))
    with _told(part):
        if place.created_us(part.lane.topic) != part.created_us:
            raise Conflict(f"the topic {part.lane.topic} was deleted and made again")
        for frame in place.frames(part.lane, start, part.end):
            if frame.is_control or not times.may_have(frame.header):
                continue
            records = left_of(frame, frame.records())
            header = frame.header
            if header.base_offset < start or header.end_offset > part.end:
                records = [each for each in records if start <= each.offset < part.end]
            if removed:
                records = [each for each in records if each.offset not in removed]
            if not times.are_all:
                records = [each for each in records if times.since_us <= each.timestamp < times.until_us]
            if records:
                yield records


def batches_of(place: Place, part: Part, times: TimeRange) -> "Iterator[pa.RecordBatch]":
    """The same as Arrow batches. Needs pyarrow."""
    from quivermq.spark.batches import SCHEMA
    from quivermq.spark.source.plan import Range, rows_of

    asked = Range(part.lane, part.start, part.end, created_us=part.created_us, times=times)
    with _told(part):
        yield from rows_of(place, asked, SCHEMA.names, fail_on_data_loss=True)


@contextmanager
def _told(part: Part) -> Iterator[None]:
    """Say of offsets that went meanwhile what somebody who exports can do."""
    try:
        yield
    except OffsetOutOfRange as error:
        text = (
            f"offsets of {part.lane} went while they were exported, and now it holds [{error.start},"
            f" {error.end}): export again what is left, and use an archive to keep them"
        )
        error.args = (text,)
        raise
