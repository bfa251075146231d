"""A range of a lane as staged Parquet files, one for each day. The work of one task. Needs pyarrow."""

from collections.abc import Iterable, Iterator
from uuid import uuid4

import pyarrow as pa

from quivermq.archive.archiving import ArchiveRange
from quivermq.archive.manifest import (
    ArchivedFile,
    ArchiveRun,
    LastMessage,
    day_of,
    file_name,
)
from quivermq.archive.parquet import SCHEMA, ParquetOutput
from quivermq.archive.reading import ArchivedTopic
from quivermq.disk import Disk
from quivermq.errors import StorageFailed
from quivermq.frame import Frame
from quivermq.frame.batches import RemovedOffsets, frame_batches
from quivermq.model.lanes import Lane

# A reader takes a row group as a whole.
GROUP_ROWS = 131_072
GROUP_BYTES = 16 * 1024 * 1024

_COLUMNS = [name for name in SCHEMA.names if name not in ("partition", "priority")]


class Rows:
    """Gathers the frames of one lane until they are enough for a row group."""

    def __init__(self, lane: Lane, start: int, end: int, removed: RemovedOffsets | None) -> None:
        self._lane = lane
        self._start, self._end = start, end
        self._removed = removed
        self._frames: list[Frame] = []
        self._count = self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._count >= GROUP_ROWS or self._bytes >= GROUP_BYTES

    def add(self, frame: Frame) -> None:
        if not frame.is_control:
            self._frames.append(frame)
            self._count += len(frame)
            self._bytes += frame.header.raw_bytes

    def take(self) -> pa.Table | None:
        """The messages in the range that are still there, as one row group; None when there are none."""
        frames, self._frames = self._frames, []
        self._count = self._bytes = 0
        batches = list(frame_batches(iter(frames), _COLUMNS, self._start, self._end, self._removed))
        if not batches:
            return None
        # One chunk, because the writer makes a page of each.
        table = pa.Table.from_batches(batches).combine_chunks()
        own = {
            "partition": pa.repeat(pa.scalar(self._lane.partition, pa.int32()), table.num_rows),
            "priority": pa.repeat(pa.scalar(self._lane.priority, pa.string()), table.num_rows),
        }
        columns = [own[name] if name in own else table.column(name) for name in SCHEMA.names]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


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
    disk: Disk, job: ArchiveRun, topic: ArchivedTopic, lane: Lane, files: list[ArchivedFile]
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
    name = file_name(lane, day, start, end)
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
        name = file_name(self._piece.lane, self._day, self._start, end)
        place = (name, self._day, self._start, end)
        self.files.append(ArchivedFile(*place, *written, self._staged, self._last))
        self._start, self._last = end, None


def _staged_name(job: ArchiveRun) -> str:
    # Another attempt at the same piece writes another file: only the one that is told of counts.
    # Nor is it called a Parquet file before it is one: who reads all that are called so must not meet it.
    return f"{job.staging}/{uuid4().hex}.staged"
