"""Parquet files of an archive, through the same door to files as everything else. Needs pyarrow."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from quivermq.archive.manifest import TIMESTAMP_NONE
from quivermq.archive.reading import RowGroupCache
from quivermq.disk import Buffer, Disk, File
from quivermq.errors import StorageFailed
from quivermq.frame.arrow import HEADERS, TIME

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        ("headers", HEADERS),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIME, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("priority", pa.string(), nullable=False),
        ("expires_at", TIME),
        pa.field("append_time", TIME, nullable=False),
        ("dedup_id", pa.string()),
        ("origin_id", pa.string()),
    ]
)

# Looking for these, a reader may pass over whole parts of a file; of values nobody asks for the smallest.
_COUNTED = ["offset", "timestamp", "append_time", "expires_at"]
# The same in all or many rows; of anything else a dictionary would be as large as the column.
_REPEATED = ["partition", "priority", "append_time"]

_WRITE_BYTES = 1024 * 1024


class ParquetTotals(NamedTuple):
    """What a file holds: as an `ArchivedFile` says it."""

    rows: int
    timestamp_max: int
    bytes: int
    crc: int


class ParquetOutput:
    """A new file that grows by tables, each a row group, and is durable once closed."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._timestamp_max = TIMESTAMP_NONE
        self._file = disk.create(path)
        self._sink = _Sink(self._file)
        try:
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                SCHEMA,
                compression="zstd",
                use_dictionary=_REPEATED,
                write_statistics=_COUNTED,
                write_page_checksum=True,
                sorting_columns=[pq.SortingColumn(SCHEMA.get_field_index("offset"))],
            )
        except BaseException:
            self._file.close()
            raise

    def write(self, table: pa.Table) -> None:
        """Add a row group."""
        self.rows += table.num_rows
        latest = pc.max(table.column("timestamp").cast(pa.int64())).as_py()
        if latest is not None:
            self._timestamp_max = max(self._timestamp_max, latest)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> ParquetTotals:
        """Write the rest, sync, and tell what there is now."""
        self._writer.close()
        self._sink.empty()
        self._file.sync()
        crc = _footer_crc(self._file)
        self._file.close()
        return ParquetTotals(self.rows, self._timestamp_max, self._sink.written, crc)

    def abandon(self) -> None:
        """Let go of a file that nobody will ask for."""
        self._file.close()


def read_rows(
    disk: Disk,
    path: Path,
    start: int,
    end: int,
    columns: Sequence[str],
    *,
    crc: int,
    recent: RowGroupCache | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of offsets [start, end) in order, a part of the file at a time, perhaps one of `recent`.

    Raises FileNotFoundError, and StorageFailed for a file that is damaged, or another than `crc` says.
    """
    # Opened at once: a caller that has to look for the file elsewhere does it before the first row.
    file = disk.open(path)
    return _read_rows(file, start, end, list(columns), crc, recent or RowGroupCache())


def _read_rows(
    file: File, start: int, end: int, columns: list[str], crc: int, recent: RowGroupCache
) -> Iterator[pa.RecordBatch]:
    try:
        # Before anybody believes what the end of the file says of the rest.
        if _footer_crc(file) != crc:
            raise _damaged(file.path, "its end is not what was written")
        opened = pq.ParquetFile(
            pa.PythonFile(_Source(file), mode="r"), page_checksum_verification=True, pre_buffer=False
        )
        for group in _groups(opened, start, end):
            names = ["offset", *columns]
            rows = recent.get((file.path, crc, group, *names), partial(opened.read_row_group, group, names))
            yield from _cut(rows, start, end, columns)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(file.path, str(error)) from error
    finally:
        file.close()


def _footer_crc(file: File) -> int:
    """The sum of what Parquet writes last: what there is, where it is, how long that is."""
    size = file.size()
    length = int.from_bytes(file.read(max(0, size - 8), 4), "little")
    start = max(0, size - 8 - length)
    return crc32c(file.read(start, size - start))


def _groups(opened: pq.ParquetFile, start: int, end: int) -> Iterator[int]:
    """The row groups that may have a row of the range."""
    # The columns of a file are counted down to the leaves: headers are two of them.
    paths = [opened.schema.column(leaf).path for leaf in range(opened.metadata.num_columns)]
    leaf = paths.index("offset")
    for group in range(opened.num_row_groups):
        counted = opened.metadata.row_group(group).column(leaf).statistics
        if counted is None or not counted.has_min_max or (counted.min < end and counted.max >= start):
            yield group


def _cut(table: pa.Table, start: int, end: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    offsets = table.column("offset").combine_chunks()
    first = bisect_left(range(len(offsets)), start, key=lambda row: offsets[row].as_py())
    behind = bisect_left(range(len(offsets)), end, key=lambda row: offsets[row].as_py())
    if first < behind:
        yield from table.select(columns).slice(first, behind - first).to_batches()


def _damaged(path: Path, reason: str) -> StorageFailed:
    return StorageFailed(
        f"{path} is damaged: {reason}; bring the file back from a copy of the archive", path=path
    )


class _Sink:
    """A file as pyarrow writes it: in many small parts, which are gathered here."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._parts: list[bytes] = []
        self._held_bytes = 0
        self.written = 0
        self.closed = False

    def write(self, data: Buffer) -> int:
        # A copy, because the memory is pyarrow's again when this returns.
        part = bytes(data)
        self._parts.append(part)
        self._held_bytes += len(part)
        self.written += len(part)
        if self._held_bytes >= _WRITE_BYTES:
            self.empty()
        return len(part)

    def empty(self) -> None:
        """Hand over what was gathered."""
        parts, self._parts, self._held_bytes = self._parts, [], 0
        if parts:
            self._file.append(parts)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """pyarrow asks for this after every part: `empty` is for when it matters."""

    def close(self) -> None:
        # Whoever made the file syncs and closes it: pyarrow would close it unsynced.
        self.closed = True


class _Source:
    """A file as pyarrow reads it: by `pread`, because a bad sector is then an error of one reader."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = file.size()
        self._position = 0
        self.closed = False

    def read(self, length: int = -1) -> bytes:
        if length < 0:
            length = self._size - self._position
        data = self._file.read(self._position, length)
        self._position += len(data)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        base = (0, self._position, self._size)[whence]
        self._position = base + position
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self.closed = True
