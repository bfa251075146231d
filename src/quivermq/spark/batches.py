"""Messages of a lane as Arrow batches of a size that Spark likes.

Large frames pass as they are, over their mapped memory. Smaller ones are put together, because a batch
costs Spark as much as thousands of rows. The smallest are not even made a batch each: that costs, too.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import chain, groupby, pairwise, repeat, starmap
from operator import attrgetter, or_
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from quivermq.archive import ArchivedTopic, LanePlace
from quivermq.errors import InvalidRequest
from quivermq.frame import Column, Frame, Header, removed_offsets
from quivermq.frame.arrow import HEADERS, TIME, absent, arrow_batch
from quivermq.frame.arrow import SCHEMA as FRAME_SCHEMA
from quivermq.frame.rewriting import left_mask
from quivermq.spark.place import Lane
from quivermq.topic.offsets import OffsetSet

# What a frame tells of its messages, and when it came in, which is the same for all of them.
FRAME_COLUMNS = FRAME_SCHEMA.append(pa.field("append_time", TIME, nullable=False))

_STORED_AS = {
    "value": Column.VALUE,
    "key": Column.KEY,
    "headers": Column.HEADERS,
    "timestamp": Column.TIMESTAMP,
    "expires_at": Column.EXPIRES_AT,
    "dedup_id": Column.DEDUP_ID,
    "origin_id": Column.ORIGIN_ID,
}


# Times that a frame's header tells for all of its messages.
_OF_HEADERS = {"timestamp": "timestamp_min", "append_time": "append_time"}


def joined(frames: Sequence[Frame], names: Sequence[str]) -> pa.RecordBatch:
    """The messages of frames that follow each other, none of which is a control frame.

    `names` are columns of a frame's schema. Raises InvalidFrame.
    """
    headers = [frame.header for frame in frames]
    present = reduce(or_, (header.columns for header in headers))
    stored = tuple(name for name in names if present & _STORED_AS.get(name, 0))
    arrays: dict[str, pa.Array] = {}
    if stored:
        # A frame that lacks what another one has makes up for it; what nobody has is not even looked for.
        whole = pa.concat_batches([arrow_batch(frame, stored) for frame in frames])
        arrays = dict(zip(stored, whole.columns, strict=True))
    columns = [arrays[name] if name in arrays else _shared(name, headers) for name in names]
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([FRAME_COLUMNS.field(name) for name in names])
    )


def _shared(name: str, headers: Sequence[Header]) -> pa.Array:
    """A column that is not stored, for the messages of all these frames."""
    if name == "offset":
        return _offsets(headers)
    if name in _OF_HEADERS:
        taken = attrgetter(_OF_HEADERS[name])
        stamps = np.fromiter(map(taken, headers), np.int64, len(headers))
        counts = np.fromiter((header.message_count for header in headers), np.int64, len(headers))
        return pa.array(np.repeat(stamps, counts)).view(TIME)
    return absent(name, sum(header.message_count for header in headers))


def _offsets(headers: Sequence[Header]) -> pa.Array:
    if all(header.end_offset == after.base_offset for header, after in pairwise(headers)):
        return pa.arange(headers[0].base_offset, headers[-1].end_offset)
    return pa.concat_arrays([pa.arange(header.base_offset, header.end_offset) for header in headers])


ROWS_MAX = 65_536
# So many bytes of messages are a batch, too, however few they are: rows are held in memory.
BYTES_MAX = 32 * 1024 * 1024
# A frame with so many rows is a batch of its own.
_ROWS_ENOUGH = 8192
# As many are put together at once; one frame more still fits into a batch.
_ROWS_MANY = 32_768
# Below this, a frame's messages are cheaper to take one by one than its columns are to make.
_ROWS_FEW = 8

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("priority", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("headers", HEADERS),
        ("expires_at", TIME),
        ("dedup_id", pa.string()),
        ("append_time", TIME),
        ("scheduled_id", pa.string()),
    ]
)

_OF_LANE = ("topic", "partition", "priority")
_APPEND_TIME = "append_time"
# What frames and archives call otherwise.
STORED_NAMES = {"scheduled_id": "origin_id"}

Wanted = Callable[[Header], bool]
Making = Callable[[Iterator[Frame], Sequence[str], "_Cut"], Iterator[pa.RecordBatch]]


class FrameSource(Protocol):
    """As much of a `Place` as reading a range needs."""

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]: ...

    def removed(self, lane: Lane) -> OffsetSet: ...


def record_batches(
    place: FrameSource,
    lane: Lane,
    start: int,
    end: int,
    columns: Sequence[str] = SCHEMA.names,
    *,
    rows_max: int = ROWS_MAX,
    wanted: Wanted | None = None,
) -> Iterator[pa.RecordBatch]:
    """The messages of a lane with offsets in [start, end), in order, without removed and compacted ones.

    `columns` chooses and orders columns of `SCHEMA`. Frames of which `wanted` says no by their header are
    left out, undecoded. Raises what `Place.frames` raises, and InvalidFrame.
    """
    schema = chosen(columns)
    removed = place.removed(lane)
    # Nothing before the floor is shown, so it need not be read either.
    start = max(start, min(removed.floor, end))
    frames = place.frames(lane, start, end)
    if wanted is not None:
        frames = (frame for frame in frames if wanted(frame.header))
    # At least one column of the frames' own, which says how many rows there are.
    names = stored_names(columns, _OF_LANE) or ["offset"]
    for batch in _merged(_parts(frames, names, _Cut(start, end, removed)), rows_max):
        yield _completed(batch, lane, schema)


def chosen(columns: Sequence[str]) -> pa.Schema:
    """The columns of those names, in that order. Raises InvalidRequest for one that there is not."""
    for name in columns:
        if name not in SCHEMA.names:
            raise InvalidRequest(f"messages have no column {name!r}: choose from {', '.join(SCHEMA.names)}")
    return pa.schema([SCHEMA.field(name) for name in columns])


def stored_names(columns: Sequence[str], besides: Container[str]) -> list[str]:
    """What frames and archives call the columns, but for those that are the same for all messages."""
    return [STORED_NAMES.get(name, name) for name in columns if name not in besides]


class _Cut:
    """Which messages of a frame are shown."""

    def __init__(self, start: int, end: int, removed: OffsetSet) -> None:
        self._start = start
        self._end = end
        # As ranges, in order, so that a frame is compared with two numbers instead of with a set.
        flat = removed.runs()
        self._removed = [
            (a, b) for a, b in zip(flat[::2], flat[1::2], strict=True) if b > start and a < end
        ]

    def takes_all(self, first: Header, last: Header) -> bool:
        """Whether every message of the frames from the first to the last is shown."""
        start, end = first.base_offset, last.end_offset
        is_inside = self._start <= start and end <= self._end
        return is_inside and not any(gone < end and back > start for gone, back in self._removed)

    def kept(self, header: Header) -> list[tuple[int, int]]:
        """The half-open offsets of a frame that are shown."""
        position, end = max(header.base_offset, self._start), min(header.end_offset, self._end)
        kept = []
        for gone, back in self._removed:
            if gone >= end:
                break
            if back <= position:
                continue
            if gone > position:
                kept.append((position, gone))
            position = back
        if position < end:
            kept.append((position, end))
        return kept


def _parts(frames: Iterator[Frame], names: Sequence[str], cut: _Cut) -> Iterator[pa.RecordBatch]:
    """Pieces of frames in order: runs of smaller frames together, each other frame as it is."""
    for make, run in groupby((f for f in frames if not f.is_control), key=_making):
        yield from make(run, names, cut)


def _making(frame: Frame) -> "Making":
    """How the rows of a frame are best made. What may have been taken out of it is looked at by itself."""
    header = frame.header
    if header.message_count < _ROWS_FEW:
        return _small
    if header.message_count >= _ROWS_ENOUGH or header.columns & Column.EXPIRES_AT:
        return _large
    return _middle


def _large(frames: Iterator[Frame], names: Sequence[str], cut: _Cut) -> Iterator[pa.RecordBatch]:
    for frame in frames:
        header = frame.header
        kept = cut.kept(header)
        if not kept:
            continue
        batch, left = _whole(frame, names), left_mask(frame)
        for start, end in kept:
            place, rows = start - header.base_offset, end - start
            part = batch.slice(place, rows)
            yield part if left is None else part.filter(left.slice(place, rows))


def _whole(frame: Frame, names: Sequence[str]) -> pa.RecordBatch:
    """All messages of a frame."""
    if _APPEND_TIME not in names:
        return arrow_batch(frame, names)
    own = [name for name in names if name != _APPEND_TIME]
    came = pa.repeat(pa.scalar(frame.header.append_time, TIME), len(frame))
    arrays = dict(zip(own, arrow_batch(frame, own).columns, strict=True)) | {_APPEND_TIME: came}
    schema = pa.schema([FRAME_COLUMNS.field(name) for name in names])
    return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=schema)


def _middle(frames: Iterator[Frame], names: Sequence[str], cut: _Cut) -> Iterator[pa.RecordBatch]:
    """Frames that are worth a batch each, but better put together."""
    for gathered in _gathered(frames, _ROWS_MANY):
        if cut.takes_all(gathered[0].header, gathered[-1].header):
            yield joined(gathered, names)
        else:
            yield from _large(iter(gathered), names, cut)


def _gathered(frames: Iterator[Frame], rows_max: int) -> Iterator[list[Frame]]:
    """Frames in lists of about so many rows, or of enough bytes."""
    gathered: list[Frame] = []
    rows = size = 0
    for frame in frames:
        gathered.append(frame)
        rows += frame.header.message_count
        size += frame.header.raw_bytes
        if rows >= rows_max or size >= BYTES_MAX:
            yield gathered
            gathered, rows, size = [], 0, 0
    if gathered:
        yield gathered


def _pairs(frame: Frame) -> Iterable[list[tuple[str, bytes]]]:
    """The headers of each message, in the order in which they were given, as often as they were."""
    if not frame.header.columns & Column.HEADERS:
        return repeat([], frame.header.message_count)
    pairs = frame.layout.headers
    assert pairs is not None, "the header of a frame says which columns it has"
    items = list(zip(map(bytes.decode, pairs.names.values()), pairs.values.values(), strict=True))
    return [items[start:end] for start, end in pairwise(pairs.offsets)]


# The header says what no message has: then nobody has to open the body for it, which for a frame of one
# message takes longer than all the rest.


def _keys(frame: Frame) -> Iterable[bytes | None]:
    header = frame.header
    return frame.keys() if header.columns & Column.KEY else repeat(None, header.message_count)


def _times(frame: Frame) -> Iterable[int]:
    header = frame.header
    if header.columns & Column.TIMESTAMP:
        return frame.timestamps()
    return repeat(header.timestamp_min, header.message_count)


def _expiries(frame: Frame) -> Iterable[int | None]:
    header = frame.header
    return frame.expires_at() if header.columns & Column.EXPIRES_AT else repeat(None, header.message_count)


def _dedup_ids(frame: Frame) -> Iterable[str | None]:
    header = frame.header
    return frame.dedup_ids() if header.columns & Column.DEDUP_ID else repeat(None, header.message_count)


def _origin_ids(frame: Frame) -> Iterable[str | None]:
    header = frame.header
    return frame.origin_ids() if header.columns & Column.ORIGIN_ID else repeat(None, header.message_count)


# What a frame has for each column.
_TAKE: dict[str, Callable[[Frame], Iterable[Any]]] = {
    "offset": lambda frame: range(frame.header.base_offset, frame.header.end_offset),
    "timestamp": _times,
    "key": _keys,
    "value": Frame.values,
    "headers": _pairs,
    "expires_at": _expiries,
    "dedup_id": _dedup_ids,
    "origin_id": _origin_ids,
    "append_time": lambda frame: repeat(frame.header.append_time, frame.header.message_count),
}


def _small(frames: Iterator[Frame], names: Sequence[str], cut: _Cut) -> Iterator[pa.RecordBatch]:
    """Many small frames as one batch, as often as there are enough of them."""
    for gathered in _gathered(frames, _ROWS_ENOUGH):
        yield _together(gathered, names, cut)


def _together(frames: list[Frame], names: Sequence[str], cut: _Cut) -> pa.RecordBatch:
    schema = pa.schema([FRAME_COLUMNS.field(name) for name in names])
    arrays = [
        pa.array(list(chain.from_iterable(map(_TAKE[field.name], frames))), field.type) for field in schema
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    gone = list(chain.from_iterable(map(removed_offsets, frames)))
    if not gone and cut.takes_all(frames[0].header, frames[-1].header):
        return batch
    kept = chain.from_iterable(cut.kept(frame.header) for frame in frames)
    shown = set(chain.from_iterable(starmap(range, kept))).difference(gone)
    offsets = chain.from_iterable(map(_TAKE["offset"], frames))
    return batch.filter(pa.array(map(shown.__contains__, offsets), pa.bool_()))


def _merged(parts: Iterator[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Parts put together up to `rows_max`, and cut where one is longer."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for part in parts:
        if gathered and (rows + part.num_rows > rows_max or size + part.nbytes > BYTES_MAX):
            yield from _as_one(gathered)
            gathered, rows, size = [], 0, 0
        if not gathered and part.num_rows >= min(_ROWS_ENOUGH, rows_max):
            for position in range(0, part.num_rows, rows_max):
                yield part.slice(position, rows_max)
            continue
        gathered.append(part)
        rows += part.num_rows
        size += part.nbytes
    yield from _as_one(gathered)


def _as_one(parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batch = pa.concat_batches(parts) if len(parts) > 1 else parts[0] if parts else None
    if batch is not None and batch.num_rows:
        yield batch


def _completed(batch: pa.RecordBatch, lane: Lane, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns that are the same for all messages of a lane."""
    if not schema.names:
        return batch.select([])
    arrays = [
        _repeated(getattr(lane, name), batch.num_rows)
        if name in _OF_LANE
        else batch.column(STORED_NAMES.get(name, name))
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _repeated(value: str | int, rows: int) -> pa.Array:
    return _constant(value)[:rows] if rows <= ROWS_MAX else _constant.__wrapped__(value, rows)


@lru_cache(maxsize=64)
def _constant(value: str | int, rows: int = ROWS_MAX) -> pa.Array:
    kind = pa.string() if isinstance(value, str) else pa.int32()
    return pa.repeat(pa.scalar(value, kind), rows)


def archived_batches(
    archived: ArchivedTopic, lane: Lane, start: int, end: int, columns: Sequence[str], removed: OffsetSet
) -> Iterator[pa.RecordBatch]:
    """The messages of [start, end) but for those that were removed since they were archived."""
    schema = chosen(columns)
    place = LanePlace(lane.partition, lane.priority)
    # At least one column of the file's own, which says how many rows there are.
    names = stored_names(schema.names, ("topic",)) or ["offset"]
    for first, behind in _left(start, end, removed):
        for batch in archived.batches(place, first, behind, names):
            for position in range(0, batch.num_rows, ROWS_MAX):
                yield _archived_completed(batch.slice(position, ROWS_MAX), lane.topic, schema)


def _left(start: int, end: int, removed: OffsetSet) -> Iterator[tuple[int, int]]:
    """What is left of a range, as ranges."""
    start = max(start, min(removed.floor, end))
    inside = [min(max(edge, start), end) for edge in removed.runs()]
    for first, behind in list(pairwise([start, *inside, end]))[::2]:
        if first < behind:
            yield first, behind


def _archived_completed(batch: pa.RecordBatch, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        return batch.select([])
    arrays = [
        pa.repeat(pa.scalar(topic, field.type), batch.num_rows)
        if field.name == "topic"
        # The same in other words: a list of the log calls its items otherwise than one of Parquet.
        else batch.column(STORED_NAMES.get(field.name, field.name)).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
