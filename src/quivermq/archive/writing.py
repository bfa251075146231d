"""A range of a lane as staged Parquet files, one for each day. The work of one task. Needs pyarrow."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from quivermq.archive.archiving import ArchiveRange
from quivermq.archive.manifest import (
    ArchivedFile,
    ArchiveRun,
    LanePlace,
    LastMessage,
    day_of,
    file_name,
)
from quivermq.archive.parquet import SCHEMA, ParquetOutput
from quivermq.archive.reading import ArchivedTopic
from quivermq.disk import Disk
from quivermq.errors import StorageFailed
from quivermq.frame import Column, Frame, left_of
from quivermq.frame.arrow import HEADERS, TIME, arrow_batch
from quivermq.frame.arrow import SCHEMA as FRAME_SCHEMA
from quivermq.frame.rewriting import left_mask
from quivermq.model.messages import Record

# A reader takes a row group as a whole.
GROUP_ROWS = 131_072
GROUP_BYTES = 16 * 1024 * 1024

# Frames of fewer messages are gathered: a batch of its own for each would take longer than its messages.
_SMALL = 32

# What a frame has; the rest of a row is the same for many.
_COLUMNS = ("key", "value", "headers", "offset", "timestamp", "expires_at", "dedup_id", "origin_id")
_SCHEMA = pa.schema([FRAME_SCHEMA.field(name) for name in _COLUMNS])


class RemovedOffsets(Protocol):
    """Offsets that were taken out for everybody."""

    def __contains__(self, offset: int) -> bool: ...
    def __bool__(self) -> bool: ...


class Rows:
    """Gathers the messages of one lane until they are enough for a row group."""

    def __init__(self, lane: LanePlace, start: int, end: int, removed: RemovedOffsets | None) -> None:
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


_DAY_US = 24 * 3600 * 1_000_000


def write_piece(
    disk: Disk,
    job: ArchiveRun,
    piece: ArchiveRange,
    frames: Iterable[Frame],
    removed: RemovedOffsets | None = None,
) -> list[ArchivedFile]:
    """Stage the messages of a range, durably, and say what became of it.

    `frames` are all that the range has, in order. Raises what they raise, DiskRefused and StorageFailed;
    what was staged by then does not count and is swept away by a later run.
    """
    output = _Days(disk, job, piece, removed)
    try:
        for frame in frames:
            output.add(frame)
        output.finish(piece.end)
    except BaseException:
        output.abandon()
        raise
    if output.files:
        disk.sync_directory(job.archive / job.staging)
    return output.files


def write_merged(
    disk: Disk, job: ArchiveRun, topic: ArchivedTopic, lane: LanePlace, files: list[ArchivedFile]
) -> ArchivedFile:
    """Stage one file with the rows of several that follow on each other and are of one day."""
    start, end, day = files[0].start, files[-1].end, files[0].day
    rows = sum(file.rows for file in files)
    staged = _staged_name(job)
    output = ParquetOutput(disk, job.archive / staged)
    try:
        for table in row_groups(topic.batches(lane, start, end, SCHEMA.names)):
            output.write(table)
        if output.rows != rows:
            raise StorageFailed(
                f"{job.archive}: offsets [{start}, {end}) of {topic.name} have {output.rows} rows,"
                f" and should have {rows}",
                path=job.archive,
            )
        written = output.close()
    except BaseException:
        output.abandon()
        raise
    disk.sync_directory(job.archive / job.staging)
    last = next((file.last for file in reversed(files) if file.last is not None), None)
    name = file_name(topic.name, lane, day, start, end)
    return ArchivedFile(name, day, start, end, *written, staged, last)


class _Days:
    """Writes a file for each run of frames that came in on one day."""

    def __init__(
        self, disk: Disk, job: ArchiveRun, piece: ArchiveRange, removed: RemovedOffsets | None
    ) -> None:
        self.files: list[ArchivedFile] = []
        self._disk, self._job, self._piece = disk, job, piece
        self._rows = Rows(piece.lane, piece.start, piece.end, removed)
        self._output: ParquetOutput | None = None
        self._staged = ""
        self._day = ""
        self._day_number: int | None = None
        self._start = piece.start
        self._last: LastMessage | None = None

    def add(self, frame: Frame) -> None:
        header = frame.header
        day_number = header.append_time // _DAY_US
        if day_number != self._day_number:
            if self._output is not None:
                self._close(header.base_offset)
            self._day_number = day_number
            self._begin(day_of(header.append_time))
        if not frame.is_control:
            last_offset = min(header.end_offset, self._piece.end) - 1
            self._last = LastMessage(last_offset, header.append_time)
        self._rows.add(frame)
        if self._rows.is_full:
            self._write()

    def finish(self, end: int) -> None:
        """No frame comes any more that begins before `end`."""
        if self._start < end:
            if self._output is None:
                self._begin(day_of(self._piece.now_us))
            self._close(end)

    def abandon(self) -> None:
        if self._output is not None:
            self._output.abandon()

    def _begin(self, day: str) -> None:
        self._day = day
        self._staged = _staged_name(self._job)
        self._output = ParquetOutput(self._disk, self._job.archive / self._staged)

    def _write(self) -> None:
        table = self._rows.take()
        if table is not None:
            assert self._output is not None
            self._output.write(table)

    def _close(self, end: int) -> None:
        self._write()
        output = self._output
        assert output is not None
        written = output.close()
        self._output = None
        name = file_name(self._piece.topic, self._piece.lane, self._day, self._start, end)
        place = (name, self._day, self._start, end)
        self.files.append(ArchivedFile(*place, *written, self._staged, self._last))
        self._start, self._last = end, None


def _staged_name(job: ArchiveRun) -> str:
    # Another attempt at the same piece writes another file: only the one that is told of counts.
    # Nor is it called a Parquet file before it is one: who reads all that are called so must not meet it.
    return f"{job.staging}/{uuid4().hex}.staged"
