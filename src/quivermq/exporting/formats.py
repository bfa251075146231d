"""The formats of an export: each takes the messages of lane after lane and writes them to an output."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Protocol

from quivermq.disk import Buffer
from quivermq.errors import InvalidRequest
from quivermq.exporting.ndjson import Lines
from quivermq.exporting.output import Output
from quivermq.exporting.ranges import Part
from quivermq.exporting.rows import batches_of, records_of
from quivermq.spark.place import Place
from quivermq.spark.source.plan import TimeRange

# As the archive has them: a reader takes a row group as a whole.
_GROUP_ROWS = 131_072
_GROUP_BYTES = 64 * 1024 * 1024

# Told how many messages more were written.
Advance = Callable[[int], None]


class Format(StrEnum):
    """What an export is written as."""

    NDJSON = "ndjson"
    ARROW = "arrow"
    PARQUET = "parquet"


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


_SUFFIXES = {".parquet": Format.PARQUET, ".arrow": Format.ARROW, ".arrows": Format.ARROW}


class Writer(Protocol):
    """Writes messages of one lane after the other."""

    def write(self, place: Place, part: Part, times: TimeRange, advance: Advance) -> None:
        """All messages of a part between the moments."""
        ...

    def close(self) -> None:
        """Write what belongs behind the last message."""
        ...


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
    return ArrowWriter(output) if format is Format.ARROW else ParquetWriter(output)


class NdjsonWriter:
    """A line for each message."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, place: Place, part: Part, times: TimeRange, advance: Advance) -> None:
        lines = Lines(part.lane)
        for records in records_of(place, part, times):
            self._output.write(lines.of(records))
            advance(len(records))

    def close(self) -> None:
        """The last line is the end."""


class ArrowWriter:
    """A stream of Arrow IPC: batches as they are read."""

    def __init__(self, output: Output) -> None:
        import pyarrow as pa

        from quivermq.spark.batches import SCHEMA

        self._writer = pa.ipc.new_stream(pa.PythonFile(_Sink(output), mode="w"), SCHEMA)

    def write(self, place: Place, part: Part, times: TimeRange, advance: Advance) -> None:
        for batch in batches_of(place, part, times):
            self._writer.write_batch(batch)
            advance(batch.num_rows)

    def close(self) -> None:
        self._writer.close()


class ParquetWriter:
    """A Parquet file with row groups of a good size."""

    def __init__(self, output: Output) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from quivermq.spark.batches import SCHEMA

        self._schema = SCHEMA
        self._held: list[Any] = []
        self._rows = self._bytes = 0
        self._writer = pq.ParquetWriter(
            pa.PythonFile(_Sink(output), mode="w"),
            SCHEMA,
            compression="zstd",
            use_dictionary=["topic", "partition", "priority"],
            write_page_checksum=True,
        )

    def write(self, place: Place, part: Part, times: TimeRange, advance: Advance) -> None:
        for batch in batches_of(place, part, times):
            self._held.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
                self._write_group()
            advance(batch.num_rows)

    def close(self) -> None:
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        import pyarrow as pa

        held, self._held = self._held, []
        rows, self._rows, self._bytes = self._rows, 0, 0
        if held:
            self._writer.write_table(pa.Table.from_batches(held, self._schema), row_group_size=rows)


class _Sink:
    """An output as pyarrow writes to it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.closed = False

    def write(self, data: Buffer) -> int:
        return self._output.write(data)

    def tell(self) -> int:
        return self._output.written

    def flush(self) -> None:
        """Whoever made the output decides when."""

    def close(self) -> None:
        self.closed = True
