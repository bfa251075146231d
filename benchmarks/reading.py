"""Reading a log from one end to the other, every checksum checked."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from crc32c import crc32c

from benchmarks.measure import alternate, counted
from benchmarks.row import Goal, Row, row_of
from benchmarks.workload import LOG, Bench, chunks_of, copy, filled_log, log_files, mapped
from quivermq.log import DataDirectory, Log


def read(bench: Bench) -> Iterable[Row]:
    """Values, frames and records, from batches of 100 and of 1000."""
    for batch in (100, 1000):
        with filled_log(bench, messages=bench.scale.read, batch=batch) as path, DataDirectory(path) as data:
            yield from _rows(bench, path, data.log(LOG), batch)


def _rows(bench: Bench, path: Path, log: Log, batch: int) -> Iterable[Row]:
    subjects = {"values": _values, "frames": _frames, "records": _records}
    files = log_files(path)
    with mapped(files) as memories:
        limits = {
            "os.pread + crc32c, 1 MiB each": partial(_check_files, files),
            "memcpy": partial(copy, memories),
        }
        works = {name: partial(subject, log) for name, subject in subjects.items()} | limits
        contenders = {name: counted(work, log.end) for name, work in works.items()}
        measured = alternate(contenders, bench.scale.rounds)
    beside = {name: measured[name] for name in limits}
    for name in subjects:
        goal = Goal("at least", 5e6) if name == "values" else None
        yield row_of(f"read {name}, batches of {batch}", measured[name], beside, goal=goal)


def _values(log: Log) -> None:
    """Every value as bytes."""
    for frame in log.frames():
        frame.values()


def _frames(log: Log) -> None:
    """Checked, but not opened: as frames are handed on to a consumer."""
    for _ in log.frames():
        pass


def _records(log: Log) -> None:
    """Every message with all its fields."""
    for _ in log.records():
        pass


def _check_files(files: Iterable[Path]) -> None:
    for file in files:
        for chunk in chunks_of(file):
            crc32c(chunk)
