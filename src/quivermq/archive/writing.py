"""A range of a lane as staged Parquet files, one for each day. The work of one task. Needs pyarrow."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from quivermq.archive.manifest import ArchivedFile, LastMessage
from quivermq.archive.parquet import SCHEMA, ParquetOutput
from quivermq.archive.places import OWN, STAGING, LanePlace, day_of, file_name
from quivermq.archive.planning import Piece
from quivermq.archive.reading import ArchivedTopic
from quivermq.archive.rows import Removed, Rows, row_groups
from quivermq.disk import Disk
from quivermq.errors import StorageFailed
from quivermq.frame import Frame

_DAY_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """One run of an archiver: where it stages its files."""

    archive: Path
    name: str

    @property
    def staging(self) -> str:
        """Below the archive."""
        return f"{OWN}/{STAGING}/{self.name}"


def write_piece(
    disk: Disk, job: Job, piece: Piece, frames: Iterable[Frame], removed: Removed | None = None
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
    disk: Disk, job: Job, topic: ArchivedTopic, lane: LanePlace, files: list[ArchivedFile]
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

    def __init__(self, disk: Disk, job: Job, piece: Piece, removed: Removed | None) -> None:
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


def _staged_name(job: Job) -> str:
    # Another attempt at the same piece writes another file: only the one that is told of counts.
    # Nor is it called a Parquet file before it is one: who reads all that are called so must not meet it.
    return f"{job.staging}/{uuid4().hex}.staged"
