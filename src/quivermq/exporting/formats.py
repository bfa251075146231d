"""What an export reads, and how it writes it: the ranges of lanes that are meant, and three formats.

The offsets are fixed once: what comes in meanwhile is not exported. `run` opens the output and counts.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from quivermq.disk import Buffer
from quivermq.errors import Conflict, InvalidRequest, OffsetOutOfRange
from quivermq.frame import left_of
from quivermq.model.json import record_line
from quivermq.model.lanes import Lane, check_priority
from quivermq.model.messages import Record
from quivermq.model.operations import LaneBounds
from quivermq.reading.reader import MessageReader
from quivermq.reading.rows import ALL_TIMES, Bound, Range, TimeRange, check_bounds, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# As the archive has them: a reader takes a row group as a whole.
_GROUP_ROWS = 131_072
_GROUP_BYTES = 64 * 1024 * 1024


class Format(StrEnum):
    """What an export is written as."""

    NDJSON = "ndjson"
    ARROW = "arrow"
    PARQUET = "parquet"


_SUFFIXES = {".parquet": Format.PARQUET, ".arrow": Format.ARROW, ".arrows": Format.ARROW}


def format_of(given: Format | str | None, name: str | None) -> Format:
    """The format that was given or, when none was, the one that a file of this name is expected to have.

    Raises InvalidRequest for one that there is not.
    """
    if given is None:
        return _SUFFIXES.get(PurePath(name or "").suffix.lower(), Format.NDJSON)
    try:
        return Format(given)
    except ValueError:
        raise InvalidRequest(f"there is no format {given!r:.80}: use {', '.join(Format)}") from None


@dataclass(frozen=True, slots=True)
class ExportRange:
    """What a user asks for. Raises InvalidRequest for what nobody can mean."""

    start: Bound = None
    end: Bound = None
    partition: int | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        check_bounds(self.start, self.end)
        if self.priority is not None:
            check_priority(self.priority)

    @property
    def times(self) -> TimeRange:
        return TimeRange(
            _microseconds(self.start, ALL_TIMES.since_us), _microseconds(self.end, ALL_TIMES.until_us)
        )

    def parts(self, reader: MessageReader, topic: str) -> list[Range]:
        """The ranges in order of partition and priority. Raises TopicNotFound, InvalidRequest."""
        view = reader.look(topic)
        partitions = view.settings.partitions
        if self.partition is not None and not 0 <= self.partition < partitions:
            raise InvalidRequest(f"there is no partition {self.partition}: the topic has {partitions}")
        return [
            Range(
                lane,
                *self._offsets(reader, lane, bounds),
                created_us=view.created_us,
                times=self.times,
            )
            for lane, bounds in view.lanes.items()
            if self.partition in (None, lane.partition) and self.priority in (None, lane.priority)
        ]

    def _offsets(self, reader: MessageReader, lane: Lane, bounds: LaneBounds) -> tuple[int, int]:
        """What there is of it: offsets that are gone, or yet to come, are not there."""
        start, end = bounds.start, bounds.end
        if isinstance(self.start, int):
            start = min(max(start, self.start), end)
        elif self.start is not None and start < end:
            start = min(reader.find_time(lane, self.times.since_us), end)
        if isinstance(self.end, int):
            end = max(start, min(end, self.end))
        return start, end


def _microseconds(bound: Bound, otherwise: int) -> int:
    return (bound - _EPOCH) // _MICROSECOND if isinstance(bound, datetime) else otherwise


def _records(reader: MessageReader, part: Range) -> Iterator[list[Record]]:
    """The messages of a range in order, archived or not. Raises Conflict, OffsetOutOfRange, Corruption."""
    times, removed = part.times, reader.removed(part.lane)
    start = max(part.start, min(removed.floor, part.end))
    with _explained_loss(part):
        if reader.created_us(part.lane.topic) != part.created_us:
            raise Conflict(f"the topic {part.lane.topic} was deleted and made again")
        for frame in reader.frames(part.lane, start, part.end):
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


def _batches(reader: MessageReader, part: Range) -> "Iterator[pa.RecordBatch]":
    """The same as Arrow batches over mapped memory."""
    from quivermq.reading.batches import SCHEMA

    with _explained_loss(part):
        yield from rows_of(reader, part, SCHEMA.names, fail_on_data_loss=True)


@contextmanager
def _explained_loss(part: Range) -> Iterator[None]:
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


class Output(ABC):
    """Takes bytes as pyarrow writes them to a file, and keeps them only if it is finished."""

    closed = False

    def __init__(self) -> None:
        self.written = 0
        self._is_over = False

    def write(self, data: Buffer) -> int:
        if not self._is_over:
            self._take(data)
            self.written += len(data)
        return len(data)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:  # noqa: B027 - pyarrow calls it, and there is nothing to do.
        """`finish` is when everything is written."""

    close = flush

    @abstractmethod
    def _take(self, data: Buffer) -> None: ...

    @abstractmethod
    def finish(self) -> None:
        """Everything was written."""

    def abandon(self) -> None:
        """Something went wrong: leave nothing behind, and take no more.

        pyarrow's writers, when they are thrown away, write what belongs behind the last message.
        """
        self._is_over = True


class NdjsonWriter:
    """A line for each message, with the fields that docs/reference/http.md gives them."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, reader: MessageReader, part: Range) -> Iterator[int]:
        """Write all messages of a range, and yield how many each step wrote."""
        # A line is put together by hand: most of it is the same for all messages of a lane.
        begin = json.dumps(part.lane._asdict(), separators=(",", ":"), ensure_ascii=False)[:-1]
        for records in _records(reader, part):
            self._output.write("".join([record_line(begin, record) for record in records]).encode())
            yield len(records)

    def close(self) -> None:
        """The last line is the end."""


class ArrowWriter:
    """Arrow batches: an IPC stream of them as they are read, or Parquet with row groups of a good size."""

    def __init__(self, output: Output, format: Format) -> None:  # noqa: A002 - As everywhere.
        import pyarrow as pa
        import pyarrow.parquet as pq

        from quivermq.reading.batches import SCHEMA

        self._is_parquet = format is Format.PARQUET
        self._held: list[Any] = []
        self._rows = self._bytes = 0
        file = pa.PythonFile(output, mode="w")
        if self._is_parquet:
            columns = ["topic", "partition", "priority"]
            self._writer = pq.ParquetWriter(
                file, SCHEMA, compression="zstd", use_dictionary=columns, write_page_checksum=True
            )
        else:
            self._writer = pa.ipc.new_stream(file, SCHEMA)

    def write(self, reader: MessageReader, part: Range) -> Iterator[int]:
        for batch in _batches(reader, part):
            self._held.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            if not self._is_parquet or self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
                self._write_held()
            yield batch.num_rows

    def close(self) -> None:
        self._write_held()
        self._writer.close()

    def _write_held(self) -> None:
        import pyarrow as pa

        held, self._held = self._held, []
        rows, self._rows, self._bytes = self._rows, 0, 0
        if held:
            # As one row group, or one batch.
            self._writer.write_table(pa.Table.from_batches(held), rows)


Writer = NdjsonWriter | ArrowWriter


def writer_of(format: Format, output: Output) -> Writer:  # noqa: A002 - Called so in the contract.
    """Something that writes this format. Raises InvalidRequest where pyarrow is needed and missing."""
    if format is Format.NDJSON:
        return NdjsonWriter(output)
    try:
        import pyarrow  # noqa: F401 - Only whether it is there.
    except ImportError:
        raise InvalidRequest(
            f"{format} needs pyarrow: pip install 'quivermq[spark]', or export as ndjson"
        ) from None
    return ArrowWriter(output, format)
