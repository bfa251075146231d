"""Reading an archive by its manifests: whole ranges of offsets, never a file more or less.

Also which archive a queue has (`archive.json`), and whether that is the archive of a log: one that lost its
end goes on with other messages at its offsets.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count, groupby
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from quivermq.archive.manifest import (
    OWN,
    ArchivedFile,
    ArchivedLane,
    Manifest,
    manifest_bytes,
    parse_manifest,
)
from quivermq.disk import Disk, SystemDisk, read_file, replace_file
from quivermq.errors import NotFound, OffsetOutOfRange, StorageFailed
from quivermq.frame import Frame, encode_records
from quivermq.model.lanes import Lane
from quivermq.model.messages import Record
from quivermq.sealed import open_seal, sealed

if TYPE_CHECKING:
    import pyarrow as pa


# A part is a row group, of some 16 MiB; two, because a page may lie on both sides of a border.
_KEPT = 2


class RowGroupCache:
    """Keeps a few values that take long to make. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of a key, made now unless it was asked for just before."""
        with self._lock:
            value = self._values.get(key)
        if value is None:
            # Without the lock: two that make the same are better than one that waits for another's file.
            value = make()
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > _KEPT:
                self._values.popitem(last=False)
        return value


# Whoever rewrites an archive moves a file once or twice, not all the time.
_ATTEMPTS_MAX = 5
_FRAME_ROWS = 1000

_RECORD_COLUMNS = (
    "offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "expires_at",
    "dedup_id",
    "origin_id",
    "append_time",
)


class Archive:
    """A directory with archived topics. Cheap to make; nothing is kept open."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.directory = directory
        self.disk = disk or SystemDisk()
        # By topic: what the file said last, because to read it is much quicker than to understand it.
        self._known: dict[str, tuple[bytes, Manifest]] = {}
        self.recent = RowGroupCache()

    def check(self) -> None:
        """Raise NotFound unless this is the directory of an archive."""
        if not self.disk.is_directory(self.directory / OWN):
            raise NotFound(
                f"{self.directory} is not an archive that can be reached from here: it has no {OWN}"
            )

    def topics(self) -> list[str]:
        """The names of the topics that have a manifest."""
        names = self.disk.names(self.directory / OWN)
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def manifest(self, topic: str) -> Manifest | None:
        """The manifest of a topic as it is now; None when it has none."""
        data = manifest_bytes(self.disk, self.directory, topic)
        if data is None:
            return None
        known = self._known.get(topic)
        if known is None or known[0] != data:
            known = self._known[topic] = data, parse_manifest(data, self.directory, topic)
        return known[1]

    def last_manifest(self, topic: str) -> Manifest | None:
        """The manifest as it was when somebody last looked, for whoever need not know it better."""
        known = self._known.get(topic)
        return self.manifest(topic) if known is None else known[1]

    def topic(self, name: str, created_us: int) -> "ArchivedTopic | None":
        """What is archived of a topic; None when nothing is, or only of an earlier topic of that name."""
        manifest = self.manifest(name)
        if manifest is None or manifest.created_us != created_us:
            return None
        return ArchivedTopic(self, manifest)


class ArchivedTopic:
    """One topic of an archive, as its manifest was when this was made, and newer where that helps."""

    def __init__(self, archive: Archive, manifest: Manifest) -> None:
        self.archive = archive
        self.manifest = manifest
        self.name = manifest.topic

    def lane(self, place: Lane) -> ArchivedLane:
        return self.manifest.lane(place)

    def reload(self) -> None:
        """Look at the manifest again. Raises StorageFailed when the archive is another topic's by now."""
        fresh = self.archive.manifest(self.name)
        if fresh is None or fresh.created_us != self.manifest.created_us:
            path = self.archive.directory
            raise StorageFailed(f"{path} no longer holds this topic {self.name}", path=path)
        self.manifest = fresh

    def batches(
        self,
        place: Lane,
        start: int,
        end: int,
        columns: Sequence[str],
        *,
        recent: RowGroupCache | None = None,
    ) -> Iterator["pa.RecordBatch"]:
        """The rows of [start, end) in order. The range has to be archived.

        Raises StorageFailed, with the file's name, when one is missing or damaged: rows never go missing
        without a word.
        """
        assert self.lane(place).start <= start <= end <= self.lane(place).end, "the range is archived"
        while start < end:
            file, rows = self._opened(place, start, end, columns, recent)
            if file is None:
                return
            yield from rows
            start = file.end

    def find_time(self, place: Lane, timestamp_us: int) -> int | None:
        """The first archived offset whose message is not older than that; None when all are."""
        for file in self.lane(place).files:
            if file.timestamp_max >= timestamp_us:
                columns = ("offset", "timestamp")
                for batch in self.batches(place, file.start, file.end, columns):
                    offsets, stamps = map(_plain, batch.columns)
                    for offset, stamp in zip(offsets, stamps, strict=True):
                        if stamp >= timestamp_us:
                            return int(offset)
        return None

    def records(self, place: Lane, start: int, end: int) -> Iterator[Record]:
        """The messages of [start, end), one by one."""
        for _, records in self._records(place, start, end):
            yield from records

    def frames(self, place: Lane, start: int, end: int) -> Iterator[Frame]:
        """The messages of [start, end) as frames, which are not those that they came in with."""
        for append_time, records in self._records(place, start, end):
            places = count()
            # A frame is about offsets without a hole.
            for _, run in groupby(records, key=lambda record: record.offset - next(places)):
                whole = list(run)
                for first in range(0, len(whole), _FRAME_ROWS):
                    yield encode_records(whole[first : first + _FRAME_ROWS], append_time)

    def _records(self, place: Lane, start: int, end: int) -> Iterator[tuple[int, list[Record]]]:
        """Messages in order, those together that came in together."""
        for batch in self.batches(place, start, end, _RECORD_COLUMNS, recent=self.archive.recent):
            for first in range(0, batch.num_rows, _FRAME_ROWS):
                rows = _rows(batch.slice(first, _FRAME_ROWS))
                for append_time, run in groupby(rows, key=attrgetter("append_time")):
                    yield append_time, [row.record for row in run]

    def _opened(
        self, place: Lane, start: int, end: int, columns: Sequence[str], recent: RowGroupCache | None
    ) -> tuple[ArchivedFile | None, Iterator["pa.RecordBatch"]]:
        """The file that holds `start`, or the next one, and its rows; None when the range has no more."""
        parquet = _parquet(self.archive.directory)
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                # Somebody moved or merged it just now; whoever did so has told the manifest before.
                self.reload()
            file = next(iter(self.lane(place).files_from(start)), None)
            if file is None or file.start >= end:
                return None, iter(())
            for name in (file.name, file.staged):
                if name is not None:
                    path = self.archive.directory / name
                    try:
                        rows = parquet.read_rows(
                            *(self.archive.disk, path, start, end, columns), crc=file.crc, recent=recent
                        )
                    except FileNotFoundError:
                        continue
                    return file, rows
        assert file is not None
        raise _missing(self.archive.directory / file.name, place, file)


def _missing(path: Path, lane: Lane, file: ArchivedFile) -> StorageFailed:
    return StorageFailed(
        f"{path} is missing: it holds the offsets [{file.start}, {file.end}) of {lane.topic}, partition"
        f" {lane.partition}, {lane.priority}; bring the file back from a copy of the archive",
        path=path,
    )


class _Row:
    __slots__ = ("append_time", "record")

    def __init__(self, append_time: int, record: Record) -> None:
        self.append_time = append_time
        self.record = record


def _rows(batch: "pa.RecordBatch") -> Iterator[_Row]:
    offset, timestamp, key, value, headers, expires_at, dedup_id, origin_id, append_time = (
        _plain(batch.column(name)) for name in _RECORD_COLUMNS
    )
    pairs = [{pair["key"]: pair["value"] for pair in each or ()} for each in headers]
    columns = zip(offset, timestamp, key, value, pairs, expires_at, dedup_id, origin_id, strict=True)
    return map(_Row, append_time, map(Record._make, columns))


def _plain(column: "pa.Array") -> list[Any]:
    """Values of Python; times as numbers, because a datetime takes much longer to make."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


def _parquet(directory: Path) -> ModuleType:
    """The module that needs pyarrow. Raises StorageFailed where there is none: nobody asked wrongly."""
    try:
        from quivermq.archive import parquet
    except ImportError as error:
        raise StorageFailed(
            f"the messages in {directory} are Parquet files, and to read those pyarrow is needed:"
            " pip install 'quivermq[spark]'",
            path=directory,
        ) from error
    return parquet


FILE_NAME = "archive.json"
DEFAULT_NAME = "archive"

_VERSION = 1
_BYTES_MAX = 64 * 1024


def load_pointer(disk: Disk, data: Path) -> Path | None:
    """The archive of a data directory; None when it has none. Raises StorageFailed."""
    path = data / FILE_NAME
    try:
        document = json.loads(read_file(disk, path, bytes_max=_BYTES_MAX))
        if document["version"] != _VERSION:
            raise StorageFailed(
                f"{path} has version {document['version']!r}, this release knows {_VERSION}", path=path
            )
        open_seal(document, ("version", "directory"))
        directory = document["directory"]
        if directory is not None and not isinstance(directory, str):
            raise TypeError(f"{directory!r} is not a path")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageFailed(
            f"{path}, which says where the archive is, cannot be understood: {error!r};"
            " call use_archive with its directory again, or with None if there is no archive",
            path=path,
        ) from error
    return None if directory is None else data / directory


def store_pointer(disk: Disk, data: Path, directory: Path | None) -> None:
    """Name the archive of a data directory, durably.

    One that lies inside is named relative to it, so that both can be moved together.
    """
    name = None if directory is None else str(directory)
    if directory is not None and directory.is_relative_to(data):
        name = str(directory.relative_to(data))
    document = {"version": _VERSION, "directory": name}
    replace_file(disk, data / FILE_NAME, sealed(document, indent=None))


def find_difference(
    lane: ArchivedLane, log_start: int, log_end: int, frames: Callable[[int], Iterator[Frame]]
) -> str | None:
    """What shows that a lane was not archived from this log; None when nothing does.

    `frames` gives those of the log from an offset on. The last archived message is compared by when it
    came in, because a frame may be divided or lose messages, and keeps that.
    """
    if lane.end > log_end:
        return f"the archive ends at offset {lane.end}, and the log at {log_end}"
    last = lane.last
    if last is None or not log_start <= last.offset < log_end:
        return None
    try:
        frame = next(frames(last.offset), None)
    except OffsetOutOfRange:
        return None  # Retention took it just now.
    # A repair or a compaction may have left nothing there, and a broker shows nothing of what was removed.
    if frame is None or frame.is_control:
        return None
    header = frame.header
    if not header.base_offset <= last.offset < header.end_offset or header.append_time == last.append_time:
        return None
    return (
        f"the message at offset {last.offset} came into the log at {header.append_time} µs, and the"
        f" archived one at {last.append_time} µs"
    )
