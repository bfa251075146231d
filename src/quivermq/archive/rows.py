"""Frames as rows of an archive, in tables that are good row groups. Needs pyarrow."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quivermq.archive.parquet import SCHEMA
from quivermq.archive.places import LanePlace
from quivermq.frame import Column, Frame, Record, left_of
from quivermq.frame.arrow import HEADERS, TIME, arrow_batch
from quivermq.frame.arrow import SCHEMA as FRAME_SCHEMA
from quivermq.frame.rewriting import left_mask

# A reader takes a row group as a whole.
GROUP_ROWS = 131_072
GROUP_BYTES = 16 * 1024 * 1024

# Frames of fewer messages are gathered: a batch of its own for each would take longer than its messages.
_SMALL = 32

# What a frame has; the rest of a row is the same for many.
_COLUMNS = ("key", "value", "headers", "offset", "timestamp", "expires_at", "dedup_id", "origin_id")
_SCHEMA = pa.schema([FRAME_SCHEMA.field(name) for name in _COLUMNS])


class Removed(Protocol):
    """Offsets that were taken out for everybody."""

    def __contains__(self, offset: int) -> bool: ...
    def __bool__(self) -> bool: ...


class Rows:
    """Gathers the messages of one lane until they are enough for a row group."""

    def __init__(self, lane: LanePlace, start: int, end: int, removed: Removed | None) -> None:
        self._lane = lane
        self._start, self._end = start, end
        self._removed = removed
        self._batches: list[pa.RecordBatch] = []
        self._records: list[Record] = []
        # When messages came in, and how many of them in a row.
        self._runs: list[tuple[int, int]] = []
        self._count = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._count >= GROUP_ROWS or self._bytes >= GROUP_BYTES

    def add(self, frame: Frame) -> None:
        """Take those messages of a frame that are in the range and still there."""
        if frame.is_control:
            return
        header = frame.header
        if len(frame) >= _SMALL or not self._add_records(frame):
            self._flush_records()
            batch, left = arrow_batch(frame, _COLUMNS), left_mask(frame)
            first = max(0, self._start - header.base_offset)
            count = max(0, min(len(frame), self._end - header.base_offset) - first)
            batch = batch.slice(first, count)
            batch = self._kept(batch if left is None else batch.filter(left.slice(first, count)))
            if batch.num_rows:
                self._append(batch, header.append_time)
        self._bytes += header.raw_bytes

    def take(self) -> pa.Table | None:
        """What was gathered, as one row group; None when there is nothing."""
        self._flush_records()
        batches, runs = self._batches, self._runs
        self._batches, self._runs = [], []
        self._count = self._bytes = 0
        if not batches:
            return None
        # One chunk, because the writer makes a page of each.
        table = pa.Table.from_batches(batches).combine_chunks()
        count = table.num_rows
        # The columns that are the same for the whole lane, or for a whole frame.
        own = {
            "partition": pa.repeat(pa.scalar(self._lane.partition, pa.int32()), count),
            "priority": pa.repeat(pa.scalar(self._lane.priority, pa.string()), count),
            "append_time": _spread(runs),
        }
        columns = [own[name] if name in own else table.column(name) for name in SCHEMA.names]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        removed = self._removed
        if not removed:
            return batch
        kept = [offset not in removed for offset in batch.column("offset").to_pylist()]
        return batch if all(kept) else batch.filter(pa.array(kept, pa.bool_()))

    def _add_records(self, frame: Frame) -> bool:
        """Take the messages one by one. False where that would lose a header that is there twice."""
        removed, start, end = self._removed, self._start, self._end
        records = frame.records()
        if frame.header.columns & Column.HEADERS:
            pairs = frame.layout.headers
            if pairs is None or sum(len(record.headers) for record in records) != pairs.offsets[-1]:
                return False
        if removed or records[0].offset < start or records[-1].offset >= end:
            records = [
                r for r in records if start <= r.offset < end and not (removed and r.offset in removed)
            ]
        records = left_of(frame, records)
        if records:
            self._records += records
            self._runs.append((frame.header.append_time, len(records)))
            self._count += len(records)
        return True

    def _append(self, batch: pa.RecordBatch, append_time: int) -> None:
        self._batches.append(batch)
        self._runs.append((append_time, batch.num_rows))
        self._count += batch.num_rows

    def _flush_records(self) -> None:
        if not self._records:
            return
        records, self._records = self._records, []
        offset, timestamp, key, value, headers, expires_at, dedup_id, origin_id = zip(*records, strict=True)
        has_headers = any(headers)
        columns = {
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
            "headers": pa.array(
                [list(h.items()) for h in headers] if has_headers else [[]] * len(key), HEADERS
            ),
            "offset": pa.array(offset, pa.int64()),
            "timestamp": pa.array(timestamp, pa.int64()).view(TIME),
            "expires_at": pa.array(expires_at, pa.int64()).view(TIME),
            "dedup_id": pa.array(dedup_id, pa.string()),
            "origin_id": pa.array(origin_id, pa.string()),
        }
        self._batches.append(pa.RecordBatch.from_arrays(list(columns.values()), schema=_SCHEMA))


def _spread(runs: list[tuple[int, int]]) -> pa.Array:
    """Times, each as often as its run is long."""
    times, counts = zip(*runs, strict=True)
    ends = pa.array(accumulate(counts), pa.int32())
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, pa.array(times, TIME)))


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows that are in an archive already, in groups of a good size."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held, SCHEMA).combine_chunks()
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, SCHEMA).combine_chunks()
