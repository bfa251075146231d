"""In executors: which message is the latest of its key, and in which segment it lies."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from quivermq.errors import OffsetOutOfRange
from quivermq.frame import Frame, Header, arrow_batch, stamp_of
from quivermq.frame.rewriting import left_rows
from quivermq.spark.jobs.compact_plan import SegmentPart
from quivermq.spark.place import Place
from quivermq.topic.offsets import OffsetSet

# So many messages are brought down to their keys at once.
_ROWS_MAX = 262_144

# In the column `lane`: the row is no key but the stamp of a segment, whose number is in `offset`.
STAMP = -1

KEYS = "lane int, key binary, first long, offset long, is_tombstone boolean, append_us long"
PLACED = "segment long, offset long, stamp binary"
_KEYS = pa.schema(
    [
        ("lane", pa.int32()),
        ("key", pa.binary()),
        ("first", pa.int64()),
        ("offset", pa.int64()),
        ("is_tombstone", pa.bool_()),
        ("append_us", pa.int64()),
    ]
)


def keys_of(
    place: Place, parts: Sequence[SegmentPart], lanes: Sequence[int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What makes keys of the numbers of parts: the last message of each key, and where the first lies.

    `lanes` has, for each part, the number of its lane. A sealed one that was read as a whole has a row with
    its stamp, too: only that may be rewritten by what is known of it.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _keys_of_part(place, parts[number], lanes[number], number)
        finally:
            place.close()

    return run


def _keys_of_part(place: Place, part: SegmentPart, lane: int, number: int) -> Iterator[pa.RecordBatch]:
    removed = place.removed(part.lane)
    gathered: list[pa.RecordBatch] = []
    headers: list[Header] = []
    rows = 0
    try:
        for frame in place.frames(part.lane, part.start, part.end):
            headers.append(frame.header)
            batch = _keyed(frame, part, removed)
            if batch is None:
                continue
            gathered.append(batch)
            rows += batch.num_rows
            if rows >= _ROWS_MAX:
                yield _latest(gathered, lane)
                gathered, rows = [], 0
    except OffsetOutOfRange as error:
        # Retention was faster: what is gone supersedes nothing. Anything else would be a loss.
        if error.start <= part.start:
            raise
        headers.clear()
    if gathered:
        yield _latest(gathered, lane)
    if headers and part.is_sealed:
        row = (STAMP, stamp(number, headers), number, number, False, 0)
        yield pa.RecordBatch.from_pylist([dict(zip(_KEYS.names, row, strict=True))], _KEYS)


def stamp(number: int, headers: Iterable[Header]) -> bytes:
    """What a part is recognised by: two of them may hold the same frames."""
    return f"{number}: {stamp_of(headers)}".encode()


def _keyed(frame: Frame, part: SegmentPart, removed: OffsetSet) -> pa.RecordBatch | None:
    """The messages of a frame that have a key and are still there."""
    if frame.is_control:
        return None
    batch = left_rows(arrow_batch(frame, ["offset", "key", "value", "expires_at"]))
    offsets = batch.column("offset")
    shown = pc.and_(pc.is_valid(batch.column("key")), pc.less(offsets, part.end))
    shown = pc.and_(shown, pc.greater_equal(offsets, part.start))
    if removed:
        gone = pa.array([offset in removed for offset in offsets.to_pylist()], pa.bool_())
        shown = pc.and_not(shown, gone)
    batch = batch.filter(shown)
    if not batch.num_rows:
        return None
    columns = {
        "key": batch.column("key"),
        "offset": batch.column("offset"),
        "is_tombstone": pc.equal(pc.binary_length(batch.column("value")), 0),
        "append_us": pa.repeat(pa.scalar(frame.header.append_time, pa.int64()), batch.num_rows),
    }
    return pa.RecordBatch.from_pydict(columns)


def _latest(batches: list[pa.RecordBatch], lane: int) -> pa.RecordBatch:
    """One row a key. The rows are in the order of their offsets, so the last one is the latest."""
    columns = ("offset", "is_tombstone", "append_us")
    wanted = [("offset", "min"), *((name, "last") for name in columns)]
    table = pa.Table.from_batches(batches).group_by("key", use_threads=False).aggregate(wanted)
    arrays = [
        pa.repeat(pa.scalar(lane, pa.int32()), len(table)),
        *(table.column(name).combine_chunks() for name in ("key", "offset_min")),
        *(table.column(f"{name}_last").combine_chunks() for name in columns),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_KEYS)


def segments_of(
    bounds: dict[int, list[tuple[int, int, int]]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What makes (segment, offset, stamp) of (lane, offset, key), with an offset or a stamp in each row.

    `bounds` has, by the number of a lane, its sealed segments in order: start, end, number. What lies in
    none of them is left out: it supersedes, and stays.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lanes, offsets, keys = batch.columns
            for lane in pc.unique(lanes).to_pylist():
                mine = pc.equal(lanes, lane)
                if lane == STAMP:
                    yield _rows(offsets.filter(mine), None, keys.filter(mine))
                else:
                    yield from _placed(offsets.filter(mine), bounds.get(lane, []))

    return run


def _placed(offsets: pa.Int64Array, bounds: list[tuple[int, int, int]]) -> Iterator[pa.RecordBatch]:
    for start, end, number in bounds:
        inside = offsets.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
        if len(inside):
            yield _rows(pa.repeat(pa.scalar(number, pa.int64()), len(inside)), inside, None)


def _rows(segments: pa.Array, offsets: pa.Array | None, stamps: pa.Array | None) -> pa.RecordBatch:
    count = len(segments)
    arrays = [
        segments,
        pa.nulls(count, pa.int64()) if offsets is None else offsets,
        pa.nulls(count, pa.binary()) if stamps is None else stamps,
    ]
    return pa.RecordBatch.from_arrays(arrays, ["segment", "offset", "stamp"])
