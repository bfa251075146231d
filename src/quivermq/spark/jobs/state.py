"""What jobs have in common: the queue they are about, and what they keep to go on after a kill."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quivermq.disk import SystemDisk, read_file, replace_file
from quivermq.errors import InvalidRequest
from quivermq.reading.reader import AnyPath, QueueReader, reader_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_FILE_BYTES_MAX = 64 * 1024 * 1024
_NAME_BYTES_MAX = 200
_LOCK = "LOCK"


def job_reader(path: AnyPath | None, server: str | None, key: str | None) -> QueueReader:
    """What reads the queue that a caller names. Raises InvalidRequest unless it is exactly one."""
    if (path is None) == (server is None):
        raise InvalidRequest("say where the queue is: path= for a data directory, or server= for a broker")
    return reader_of(path, server, key)


def load(spark: "SparkSession", reader: QueueReader, **options: str) -> "DataFrame":
    """What the data source reads of a queue with these further options."""
    return spark.read.format("quiver").options(**reader.options(), **options).load()


def with_text(frame: "DataFrame") -> "DataFrame":
    """Messages with keys and values as Spark's strings, which are the same bytes."""
    return frame.withColumns({name: frame[name].cast("string") for name in ("key", "value")})


def is_file_name(name: str) -> bool:
    """Whether it is the name of one file or directory, and leads nowhere else."""
    is_plain = name not in ("", ".", "..", _LOCK) and name.isprintable() and not {"/", "\\"} & set(name)
    return is_plain and len(name.encode(errors="replace")) <= _NAME_BYTES_MAX


def state_directory(reader: QueueReader, job: str, name: str) -> Path:
    """The directory of one job. Raises InvalidRequest for a name that would lead elsewhere."""
    if not is_file_name(name):
        raise InvalidRequest(f"{name!r} is no name for a {job}: the directory of its state is called so")
    return reader.state_root() / job / name


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Work in a directory that nobody else works in. Raises DirectoryLocked."""
    disk = SystemDisk()
    disk.make_directory(directory)
    lock = disk.lock(directory / _LOCK)
    try:
        yield
    finally:
        lock.release()


def remember(file: Path, document: Mapping[str, Any]) -> None:
    """Write a document down, durably and all at once."""
    disk = SystemDisk()
    disk.make_directory(file.parent)
    replace_file(disk, file, json.dumps(document, indent=2).encode())


def remembered(file: Path) -> dict[str, Any] | None:
    """A document that was written down; None when there is none."""
    try:
        document: dict[str, Any] = json.loads(read_file(SystemDisk(), file, bytes_max=_FILE_BYTES_MAX))
    except FileNotFoundError:
        return None
    return document


_PAUSE_SECONDS = 0.25
_OBSERVATION, _OBSERVED_ROWS = "quiver_written", "rows"


@dataclass(slots=True)
class Standing:
    """How far a query is. `lag` is how many messages it knows of and has not read; None when unknown."""

    rows: int = 0
    """How many it has read."""
    written: int = 0
    """How many came out at its end, of those queries that count them with `counting`."""
    rows_per_second: float = 0.0
    lag: int | None = None
    batch: int = -1

    def learn(self, progress: Mapping[str, Any]) -> None:
        """Take in the progress of one batch. A batch that is told again counts once."""
        if progress["batchId"] > self.batch:
            self.rows += _read(progress)
            self.written += _observed(progress)
        self.batch = max(self.batch, progress["batchId"])
        self.rows_per_second = progress.get("processedRowsPerSecond") or 0.0
        lags = [lag_of(source) for source in progress.get("sources", ())]
        self.lag = None if None in lags else sum(filter(None, lags))


def counting(frame: "DataFrame") -> "DataFrame":
    """The same rows, of which the progress of a query tells how many there were."""
    from pyspark.sql.functions import count, lit

    return frame.observe(_OBSERVATION, count(lit(1)).alias(_OBSERVED_ROWS))


def _read(progress: Mapping[str, Any]) -> int:
    rows = progress.get("numInputRows")
    # Over Spark Connect only the sources tell.
    return sum(source["numInputRows"] for source in progress["sources"]) if rows is None else int(rows)


def _observed(progress: Mapping[str, Any]) -> int:
    metrics = (progress.get("observedMetrics") or {}).get(_OBSERVATION)
    if metrics is None:
        return 0
    # Over Spark Connect, the row comes as its schema and its values, of which it has one.
    rows = metrics["values"][0] if "values" in metrics else metrics[_OBSERVED_ROWS]
    return int(rows or 0)


def lag_of(source: Mapping[str, Any]) -> int | None:
    """How many messages lie between what a source has read and the last one there is; None when unknown."""
    latest, read = _sum(source.get("latestOffset")), _sum(source.get("endOffset"))
    return None if latest is None or read is None else max(0, latest - read)


def _sum(offsets_json: Any) -> int | None:
    """The sum of all offsets that the source quiver tells of."""
    try:
        offsets = json.loads(offsets_json) if isinstance(offsets_json, str) else offsets_json
        lanes = (lane for topic in offsets.values() for lane in topic["partitions"].values())
        return sum(sum(each.values()) for each in lanes)
    except (AttributeError, KeyError, TypeError, ValueError):
        # There is none before the first batch, and another source may tell anything.
        return None


OnStandings = Callable[[Mapping[str, Standing]], None]


def wait_for(
    queries: Mapping[str, "StreamingQuery"],
    report: OnStandings | None = None,
    stop: threading.Event | None = None,
) -> dict[str, Standing]:
    """Wait until all queries are at their end, or until `stop`; tell from time to time how far they are.

    Raises what the first of them failed with. Afterwards none of them runs any more, whatever happened.
    """
    standings = {name: Standing() for name in queries}
    pause = stop or threading.Event()
    try:
        while any(query.isActive for query in queries.values()):
            _look(queries, standings)
            if report is not None:
                report(standings)
            if pause.wait(_PAUSE_SECONDS):
                break
    finally:
        for query in queries.values():
            query.stop()
    _look(queries, standings)
    if report is not None:
        report(standings)
    return standings


def _look(queries: Mapping[str, "StreamingQuery"], standings: Mapping[str, Standing]) -> None:
    for name, query in queries.items():
        failure = query.exception()
        if failure is not None:
            raise failure
        for progress in query.recentProgress:
            if progress["batchId"] >= standings[name].batch:
                standings[name].learn(progress)
