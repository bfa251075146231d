"""In executors: which message is the latest of its key, and in which segment it lies."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quivermq.disk import Disk
from quivermq.errors import Conflict, InvalidFrame, NotFound, OffsetOutOfRange
from quivermq.frame import Frame, Header, arrow_batch, stamp_of
from quivermq.frame.frame import RAW_BYTES_MAX
from quivermq.frame.rewriting import left_mask, left_rows, rewritten
from quivermq.reading.reader import MessageReader, QueueReader, SegmentPart
from quivermq.topic.offsets import OffsetSet

if TYPE_CHECKING:
    from quivermq.queue.connection import Connection

# So many messages are brought down to their keys at once.
_ROWS_MAX = 262_144

# In the column `lane`: the row is no key but the stamp of a segment, whose number is in `offset`.
STAMP = -1

KEYS = "lane int, key binary, first long, offset long, is_tombstone boolean, append_us long"
PLACED = "segment long, offset long, stamp binary"
_ARROW = {"int": pa.int32(), "long": pa.int64(), "binary": pa.binary(), "boolean": pa.bool_()}


def _schema_of(ddl: str) -> pa.Schema:
    """The schema that Spark's words stand for."""
    columns = (column.split() for column in ddl.split(","))
    return pa.schema([(name, _ARROW.get(kind, pa.string())) for name, kind in columns])


_KEYS = _schema_of(KEYS)


def keys_of(
    reader: MessageReader, number: int, numbered: tuple[SegmentPart, int]
) -> Iterator[pa.RecordBatch]:
    """The keys of a part, which is the one of this number: their last message, and where the first lies.

    With the part comes the number of its lane. A sealed one that was read as a whole has a row with its
    stamp, too: only that may be rewritten by what is known of it.
    """
    with closing(reader):
        yield from _keys_of_part(reader, *numbered, number)


def _keys_of_part(
    reader: MessageReader, part: SegmentPart, lane: int, number: int
) -> Iterator[pa.RecordBatch]:
    removed = reader.removed(part.lane)
    gathered: list[pa.RecordBatch] = []
    headers: list[Header] = []
    rows = 0
    try:
        for frame in reader.frames(part.lane, part.start, part.end):
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


# A broker takes 32 MiB at once, and a frame may have 16 MiB.
_UPLOAD_BYTES = 12 * 1024 * 1024

_STAGED = ".frames"
OUTCOME = (
    "segment long, state string, messages_before long, messages_after long,"
    " bytes_before long, bytes_after long"
)
_OUTCOME = _schema_of(OUTCOME)


class SegmentPiece(NamedTuple):
    """Frames for a place in a segment, and the stamp of those that are there now."""

    frames: bytes
    expected: str


class Rewritten(NamedTuple):
    """What becomes of a segment."""

    pieces: list[SegmentPiece]
    messages_before: int
    messages_after: int
    bytes_before: int
    bytes_after: int

    @property
    def dirty_ratio(self) -> float:
        removed = self.messages_before - self.messages_after
        return removed / self.messages_before if self.messages_before else 0.0


def rewrite(
    frames: Sequence[Frame], survivors: pa.Int64Array, *, raw_bytes_max: int = RAW_BYTES_MAX
) -> Rewritten:
    """A segment with only the messages that survive, and those without a key."""

    def keep(_: Frame, batch: pa.RecordBatch) -> pa.BooleanArray:
        is_latest = pc.is_in(batch.column("offset"), value_set=survivors)
        return pc.or_(pc.is_null(batch.column("key")), is_latest)

    return _described(frames, list(rewritten(frames, keep, raw_bytes_max=raw_bytes_max)))


def _described(old: Sequence[Frame], new: Sequence[Frame]) -> Rewritten:
    return Rewritten(
        list(_pieces(old, new)),
        sum(map(_messages, old)),
        sum(map(_messages, new)),
        sum(frame.header.frame_bytes for frame in old),
        sum(frame.header.frame_bytes for frame in new),
    )


def _messages(frame: Frame) -> int:
    if frame.is_control:
        return 0
    left = left_mask(frame)
    return len(frame) if left is None else int(pc.sum(left).as_py() or 0)


def _pieces(old: Sequence[Frame], new: Sequence[Frame]) -> Iterator[SegmentPiece]:
    """What has to be sent: all from the first frame that changed to the last, in parts that can be sent."""
    same = _same(old, new)
    old, new = old[same:], new[same:]
    same = _same(old[::-1], new[::-1])
    old, new = old[: len(old) - same], new[: len(new) - same]
    # A part ends where a frame ends in both.
    ends = {frame.header.end_offset: place for place, frame in enumerate(old, 1)}
    was = begun = size = 0
    for place, frame in enumerate(new, 1):
        size += frame.header.frame_bytes
        end = ends.get(frame.header.end_offset)
        if end is not None and (size >= _UPLOAD_BYTES or place == len(new)):
            frames = b"".join(buffer for each in new[begun:place] for buffer in each.buffers())
            yield SegmentPiece(frames, stamp_of(each.header for each in old[was:end]))
            was, begun, size = end, place, 0


def _same(old: Sequence[Frame], new: Sequence[Frame]) -> int:
    """How many frames are the same at the beginning."""
    count = 0
    for before, after in zip(old, new, strict=False):
        if before.header != after.header:
            break
        count += 1
    return count


# What is done with the new frames of a segment, which is the one of this number.
HandOver = Callable[[int, SegmentPart, list[SegmentPiece]], None]


class Work(NamedTuple):
    """What every task needs to know."""

    reader: QueueReader
    parts: Sequence[SegmentPart]
    min_dirty_ratio: float
    hand_over: HandOver
    raw_bytes_max: int = RAW_BYTES_MAX
    """What whoever takes the frames can read."""


def rewriting(work: Work) -> Callable[[pa.Table], pa.Table]:
    """What rewrites the segment that a table of (segment, offset, stamp) is about, and tells of it."""

    def run(table: pa.Table) -> pa.Table:
        number = table.column("segment")[0].as_py()
        stamps = table.column("stamp").drop_null().to_pylist()
        survivors = table.column("offset").combine_chunks().drop_null()
        try:
            state, done = _run(work, number, survivors, stamps)
        finally:
            work.reader.close()
        figures = (0, 0, 0, 0) if done is None else done[1:]
        row = dict(zip(_OUTCOME.names, (number, state, *figures), strict=True))
        return pa.Table.from_pylist([row], _OUTCOME)

    return run


def _run(
    work: Work, number: int, survivors: pa.Int64Array, stamps: list[bytes]
) -> tuple[str, Rewritten | None]:
    part = work.parts[number]
    try:
        frames = list(work.reader.frames(part.lane, part.start, part.end))
    except OffsetOutOfRange:
        return "gone", None
    # Whoever has changed it since its keys were read may have left what nobody knows of.
    if [stamp(number, (frame.header for frame in frames))] != stamps:
        return "busy", _described(frames, frames)
    try:
        return _replaced(work, number, rewrite(frames, survivors, raw_bytes_max=work.raw_bytes_max))
    except InvalidFrame:
        # The broker's limits are lower than usual, and nobody tells what they are: so nothing may grow.
        return _replaced(work, number, rewrite(frames, survivors, raw_bytes_max=0))


def _replaced(work: Work, number: int, done: Rewritten) -> tuple[str, Rewritten | None]:
    if not done.pieces or done.dirty_ratio < work.min_dirty_ratio:
        return "kept", done
    try:
        work.hand_over(number, work.parts[number], done.pieces)
    except NotFound:
        return "gone", None
    except Conflict:
        return "busy", done
    return "replaced", done


def drop(number: int, part: SegmentPart, pieces: list[SegmentPiece]) -> None:
    """A dry run needs no more than to know that there are some."""


def send(reader: QueueReader, _: int, part: SegmentPart, pieces: list[SegmentPiece]) -> None:
    """Replace what is there at once, in a queue that everybody may open. Raises Conflict, NotFound."""
    with reader.open_queue() as queue:
        apply(queue, part, pieces)


def apply(queue: "Connection", part: SegmentPart, pieces: Iterable[SegmentPiece]) -> None:
    """Replace what is there. Raises Conflict, NotFound."""
    lane = part.lane
    for frames, expected in pieces:
        queue.replace_segment(
            lane.topic, lane.partition, part.start, frames, expected=expected, priority=lane.priority
        )


def stage(
    reader: QueueReader, directory: Path, number: int, _: SegmentPart, pieces: list[SegmentPiece]
) -> None:
    """Leave the pieces of a segment for the driver. A task that runs twice leaves the same."""
    disk = reader.disk
    for index, piece in enumerate(pieces):
        path = directory / f"{number}.{index}.{piece.expected}{_STAGED}"
        # Under a name of its own first: another attempt of the same task may be at work.
        unfinished = path.with_suffix(f".{uuid.uuid4().hex}")
        file = disk.create(unfinished)
        try:
            file.append([piece.frames])
        finally:
            file.close()
        disk.rename(unfinished, path)


def staged(disk: Disk, directory: Path, number: int) -> Iterator[SegmentPiece]:
    """What `stage` has left of a segment, in order, one piece in memory at a time."""
    prefix = f"{number}."
    names = [name for name in disk.names(directory) if name.startswith(prefix) and name.endswith(_STAGED)]
    for name in sorted(names, key=lambda name: int(name.split(".")[1])):
        file = disk.open(directory / name)
        try:
            yield SegmentPiece(file.read(0, file.size()), name.split(".")[2])
        finally:
            file.close()
