"""The messages of many frames as Arrow batches of a good size. Needs pyarrow (`quivermq[spark]`).

Large frames pass as they are, over their memory. Smaller ones are put together, because a batch costs
whoever takes it as much as thousands of rows. The smallest are not even made a batch each: that costs, too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, groupby, pairwise, repeat, starmap
from operator import attrgetter, or_
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from quivermq.frame.arrow import SCHEMA, TIME, absent, arrow_batch
from quivermq.frame.compaction import removed_offsets
from quivermq.frame.frame import Frame
from quivermq.frame.header import Column, Header
from quivermq.frame.rewriting import left_mask

# What a frame tells of its messages, and when it came in, which is the same for all of them.
FRAME_COLUMNS = SCHEMA.append(pa.field("append_time", TIME, nullable=False))

_STORED_AS = {
    "value": Column.VALUE,
    "key": Column.KEY,
    "headers": Column.HEADERS,
    "timestamp": Column.TIMESTAMP,
    "expires_at": Column.EXPIRES_AT,
    "dedup_id": Column.DEDUP_ID,
    "origin_id": Column.ORIGIN_ID,
}


_APPEND_TIME = "append_time"
# Times that a frame's header tells for all of its messages.
_OF_HEADERS = {"timestamp": "timestamp_min", _APPEND_TIME: _APPEND_TIME}


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

Making = Callable[[Iterator[Frame], Sequence[str], "_Cut"], Iterator[pa.RecordBatch]]


class RemovedOffsets(Protocol):
    """Offsets that were taken out for everybody: all before the floor, and runs behind it."""

    @property
    def floor(self) -> int: ...
    def runs(self) -> list[int]: ...


def frame_batches(
    frames: Iterator[Frame],
    names: Sequence[str],
    start: int,
    end: int,
    removed: RemovedOffsets | None = None,
    *,
    rows_max: int = ROWS_MAX,
) -> Iterator[pa.RecordBatch]:
    """The messages with offsets in [start, end), in order, without removed and compacted ones.

    `names` are columns of `FRAME_COLUMNS`, at least one. Raises what `frames` raise, and InvalidFrame.
    """
    return _merged(_parts(frames, names, _Cut(start, end, removed)), rows_max)


class _Cut:
    """Which messages of a frame are shown."""

    def __init__(self, start: int, end: int, removed: RemovedOffsets | None) -> None:
        self._start = start if removed is None else max(start, min(removed.floor, end))
        self._end = end
        # As ranges, in order, so that a frame is compared with two numbers instead of with a set.
        flat = [] if removed is None else removed.runs()
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


def _stored(column: int, values: Callable[[Frame], Iterable[Any]]) -> Callable[[Frame], Iterable[Any]]:
    """The values of a column, None for each message of a frame that does not have it.

    The header says so: then nobody has to open the body for it, which for a frame of one message takes
    longer than all the rest.
    """

    def take(frame: Frame) -> Iterable[Any]:
        header = frame.header
        return values(frame) if header.columns & column else repeat(None, header.message_count)

    return take


def _times(frame: Frame) -> Iterable[int]:
    header = frame.header
    if header.columns & Column.TIMESTAMP:
        return frame.timestamps()
    return repeat(header.timestamp_min, header.message_count)


# What a frame has for each column.
_TAKE: dict[str, Callable[[Frame], Iterable[Any]]] = {
    "offset": lambda frame: range(frame.header.base_offset, frame.header.end_offset),
    "timestamp": _times,
    "key": _stored(Column.KEY, Frame.keys),
    "value": Frame.values,
    "headers": _pairs,
    "expires_at": _stored(Column.EXPIRES_AT, Frame.expires_at),
    "dedup_id": _stored(Column.DEDUP_ID, Frame.dedup_ids),
    "origin_id": _stored(Column.ORIGIN_ID, Frame.origin_ids),
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
