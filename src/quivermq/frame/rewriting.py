"""Taking messages out of frames, column by column, in Arrow. Needs pyarrow (`quivermq[spark]`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from quivermq.frame.arrow import TIME, arrow_batch
from quivermq.frame.codec import compress
from quivermq.frame.compaction import REMOVED, compacted_run, is_bound, is_compacted_run
from quivermq.frame.frame import RAW_BYTES_MAX, Frame
from quivermq.frame.header import Codec, Column, padded

# So many messages in a row that are gone take more room inside of a frame than as a frame of their own.
_RUN_MESSAGES_MIN = 16
_GAP_BYTES = sum(f.header.frame_bytes for f in compacted_run((0, 1), append_time=0, timestamp=0))
# A frame of few small messages may become larger by their marks, and one that was compressed well already
# by a trifle; for more than that it stays as it is.
_GROWTH_BYTES_MAX = 512
_GROWTH_PART = 100

Keep = Callable[[Frame, pa.RecordBatch], pa.BooleanArray]


class _Gap(NamedTuple):
    """Offsets of which nothing is left, until something follows."""

    start: int
    end: int
    append_time: int
    timestamp: int
    leader_epoch: int

    def frames(self) -> list[Frame]:
        return compacted_run(
            (self.start, self.end),
            append_time=self.append_time,
            timestamp=self.timestamp,
            leader_epoch=self.leader_epoch,
        )


def rewritten(
    frames: Iterable[Frame], keep: Keep, *, raw_bytes_max: int = RAW_BYTES_MAX
) -> Iterator[Frame]:
    """The same offsets with only the messages for which `keep` says so, in as little room as it takes.

    `keep` is asked once a frame, with its messages, and answers for each; what was taken out before stays
    out. A frame in which nothing changes comes back as it is. So does one, with all that is in it, that
    could not be read any more: whose raw body would be larger than `raw_bytes_max` and than it was.
    """
    gap: _Gap | None = None
    for frame in frames:
        for part in _parts(frame, keep, raw_bytes_max, behind_gap=gap is not None):
            if isinstance(part, _Gap):
                gap = part if gap is None else _joined(gap, part)
                continue
            if gap is not None:
                yield from gap.frames()
                gap = None
            yield part
    if gap is not None:
        yield from gap.frames()


def compacted(frame: Frame, kept: pa.BooleanArray) -> Frame:
    """A frame at the same place, from the same producer, with only the messages that are kept."""
    batch = arrow_batch(frame)
    kept = pc.and_(kept, _is_left(batch))
    if pc.all(pc.equal(kept, _is_left(batch))).as_py():
        return frame
    return _frame(frame, batch, kept)


def left_mask(frame: Frame) -> pa.BooleanArray | None:
    """Which messages of a frame were not taken out; None when none was."""
    if frame.is_control or not frame.header.columns & Column.EXPIRES_AT:
        return None
    left = _is_left(arrow_batch(frame, ["expires_at"]))
    return None if pc.all(left).as_py() else left


def left_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The messages of a batch, which has the column `expires_at`, that were not taken out."""
    left = _is_left(batch)
    return batch if pc.all(left).as_py() else batch.filter(left)


def _parts(frame: Frame, keep: Keep, raw_bytes_max: int, *, behind_gap: bool) -> Iterator[Frame | _Gap]:
    header = frame.header
    if frame.is_control:
        yield _gap(frame, 0, len(frame)) if is_compacted_run(frame) else frame
        return
    batch = arrow_batch(frame)
    kept = pc.and_(keep(frame, batch), _is_left(batch))
    if pc.all(pc.equal(kept, _is_left(batch))).as_py() and pc.any(kept).as_py():
        yield frame
    elif not is_bound(header) and not pc.any(kept).as_py():
        yield _gap(frame, 0, header.message_count)
    else:
        stretches = [(0, len(frame))] if is_bound(header) else list(_stretches(kept, behind_gap))
        parts = _divided(frame, batch, kept, stretches)
        if _size(parts, behind_gap) > header.frame_bytes:
            # To mark a message as gone takes eight bytes in all of its frame, which are nothing in this.
            zipped = _divided(frame, batch, kept, stretches, Codec.ZSTD)
            parts = min(zipped, parts, key=lambda parts: _size(parts, behind_gap))
        growth_bytes_max = _GROWTH_BYTES_MAX + header.frame_bytes // _GROWTH_PART
        is_small = _size(parts, behind_gap) <= header.frame_bytes + growth_bytes_max
        is_readable = _raw_bytes(parts) <= max(header.raw_bytes, raw_bytes_max)
        yield from parts if is_small and is_readable else [frame]


def _divided(
    frame: Frame,
    batch: pa.RecordBatch,
    kept: pa.BooleanArray,
    stretches: Iterable[tuple[int, int]],
    codec: Codec | None = None,
) -> list[Frame | _Gap]:
    """Frames of the stretches, and gaps between them."""
    found: list[Frame | _Gap] = []
    position = 0
    for start, end in stretches:
        if start > position:
            found.append(_gap(frame, position, start))
        found.append(_frame(frame, batch.slice(start, end - start), kept.slice(start, end - start), codec))
        position = end
    if position < frame.header.message_count:
        found.append(_gap(frame, position, frame.header.message_count))
    return found


def _size(parts: Sequence[Frame | _Gap], behind_gap: bool) -> int:
    """The bytes that parts take. A gap that joins the one before it takes none of its own."""
    sizes = [_GAP_BYTES if isinstance(part, _Gap) else part.header.frame_bytes for part in parts]
    return sum(sizes[1:] if behind_gap and isinstance(parts[0], _Gap) else sizes)


def _raw_bytes(parts: Sequence[Frame | _Gap]) -> int:
    return max(part.header.raw_bytes for part in parts if isinstance(part, Frame))


def _is_left(batch: pa.RecordBatch) -> pa.BooleanArray:
    """Which messages were not taken out before."""
    times = batch.column("expires_at").cast(pa.int64())
    return pc.fill_null(pc.not_equal(times, pa.scalar(REMOVED, pa.int64())), True)


def _stretches(kept: pa.BooleanArray, behind_gap: bool) -> Iterator[tuple[int, int]]:
    """Where to divide a frame: [start, end) of each part that is worth a frame of its own."""
    places = pc.indices_nonzero(kept).cast(pa.int64())
    steps = pc.subtract(places.slice(1), places.slice(0, len(places) - 1))
    breaks = pc.indices_nonzero(pc.greater(steps, _RUN_MESSAGES_MIN)).to_pylist()
    starts = [places[0].as_py(), *(places[place + 1].as_py() for place in breaks)]
    ends = [*(places[place].as_py() + 1 for place in breaks), places[-1].as_py() + 1]
    # What is gone at the ends goes to the gaps beside them, if there are any or it is worth one.
    if starts[0] < _RUN_MESSAGES_MIN and not behind_gap:
        starts[0] = 0
    if len(kept) - ends[-1] < _RUN_MESSAGES_MIN:
        ends[-1] = len(kept)
    yield from zip(starts, ends, strict=True)


def _gap(frame: Frame, start: int, end: int) -> _Gap:
    header = frame.header
    base = header.base_offset
    return _Gap(base + start, base + end, header.append_time, header.timestamp_max, header.leader_epoch)


def _joined(gap: _Gap, following: _Gap) -> _Gap:
    return following._replace(start=gap.start, timestamp=max(gap.timestamp, following.timestamp))


def _frame(frame: Frame, batch: pa.RecordBatch, kept: pa.BooleanArray, codec: Codec | None = None) -> Frame:
    """The messages of a part of a frame, at their place, without what is not kept.

    With a codec, it is used whatever it saves; otherwise the frame's own one is, if that is worth it.
    """
    header = frame.header
    columns: int = Column.VALUE
    buffers = _binary(pc.if_else(kept, batch.column("value"), pa.scalar(b"", pa.binary())))
    keys = pc.if_else(kept, batch.column("key"), pa.scalar(None, pa.binary()))
    if keys.null_count < len(keys):
        columns |= Column.KEY
        buffers += [_bitmap(keys), *_binary(keys)]
    if header.columns & Column.HEADERS and (pairs := _headers(batch.column("headers"), kept)):
        columns |= Column.HEADERS
        buffers += pairs
    times = (header.timestamp_min, header.timestamp_max)
    if header.columns & Column.TIMESTAMP:
        columns |= Column.TIMESTAMP
        stamps = batch.column("timestamp").cast(pa.int64())
        buffers.append(_numbers(stamps))
        extremes = pc.min_max(stamps)
        times = (extremes["min"].as_py(), extremes["max"].as_py())
    expiry = pc.if_else(kept, batch.column("expires_at"), pa.scalar(REMOVED, pa.int64()).cast(TIME))
    if expiry.null_count < len(expiry):
        columns |= Column.EXPIRES_AT
        buffers += [_bitmap(expiry), _numbers(pc.fill_null(expiry.cast(pa.int64()), 0))]
    if header.columns & Column.DEDUP_ID:
        columns |= Column.DEDUP_ID
        ids = batch.column("dedup_id").cast(pa.binary())
        buffers += [_bitmap(ids), *_binary(ids)]
    if header.columns & Column.ORIGIN_ID:
        kept_ids = pc.if_else(kept, batch.column("origin_id"), pa.scalar(None, pa.string()))
        if kept_ids.null_count < len(kept_ids):
            columns |= Column.ORIGIN_ID
            origins = kept_ids.cast(pa.binary())
            buffers += [_bitmap(origins), *_binary(origins)]
    raw = b"".join(buffers)
    stored, used = compress(raw, Codec(header.codec)) if codec is None else compress(raw, codec, 0)
    made = header._replace(
        body_crc=crc32c(stored),
        stored_bytes=len(stored),
        raw_bytes=len(raw),
        message_count=len(batch),
        base_offset=batch.column("offset")[0].as_py(),
        timestamp_min=times[0],
        timestamp_max=times[1],
        columns=columns,
        codec=used,
    )
    # Whoever writes it sees to it that others can read it.
    return Frame(made, stored, max(len(raw), header.raw_bytes))


def _binary(values: pa.BinaryArray) -> list[bytes]:
    """Offsets and bytes of an array, as a body has them: from 0 on, and nothing where there is nothing."""
    values = pc.fill_null(values, b"")
    lengths = pc.binary_length(values)
    _, offsets, data = values.buffers()
    start, end = _ends(offsets, values.offset, len(values))
    return [_offsets(lengths), _pad(memoryview(data)[start:end].tobytes() if data else b"")]


def _ends(offsets: pa.Buffer, first: int, count: int) -> tuple[int, int]:
    places = memoryview(offsets).cast("B").cast("i")
    return places[first], places[first + count]


def _headers(headers: pa.ListArray, kept: pa.BooleanArray) -> list[bytes]:
    """The column of the headers that are kept; nothing when there are none."""
    counts = pc.if_else(kept, pc.list_value_length(headers), pa.scalar(0, pa.int32()))
    chosen = pc.take(kept, pc.list_parent_indices(headers))
    pairs = pc.list_flatten(headers).filter(chosen)
    if not len(pairs):
        return []
    names, values = pairs.flatten()
    return [_offsets(counts), *_binary(names.cast(pa.binary())), *_binary(values)]


def _offsets(lengths: pa.Int32Array) -> bytes:
    ends = pc.cumulative_sum(lengths)
    return _pad(bytes(4) + _bytes(ends, 4))


def _bitmap(values: pa.Array) -> bytes:
    """One bit a message, 1 where it has something."""
    there = pc.cast(pc.is_valid(values), pa.uint8())
    # Arrow leaves the bits behind the last message undefined, and a body does not.
    digits = _bytes(there, 1).translate(b"01" + bytes(254))
    return int(digits[::-1], 2).to_bytes(padded((len(values) + 7) // 8), "little")


def _numbers(values: pa.Int64Array) -> bytes:
    return _bytes(values, 8)


def _bytes(values: pa.Array, width: int) -> bytes:
    """The numbers of an array without nulls."""
    data = values.buffers()[1]
    start = values.offset * width
    return memoryview(data)[start : start + len(values) * width].tobytes()


def _pad(buffer: bytes) -> bytes:
    return buffer + bytes(-len(buffer) % 8)
