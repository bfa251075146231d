"""Reading a log from one end to the other, every checksum checked."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from crc32c import crc32c

from benchmarks.measure import Prepare, counted
from benchmarks.race import Race, Subject, turns
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.workload import Bench, chunks_of, copy, filled_logs, log_files, mapped
from quivermq import Log

_Logs = Mapping[Shape, tuple[Path, Log]]


def read(bench: Bench) -> Iterable[Race]:
    """Values, frames and records, from batches of 100 and of 1000."""
    for batch in (100, 1000):
        subjects = [
            Subject(
                f"read {name}, batches of {batch}",
                name,
                Goal("at least", 5e6) if name == "values" else None,
            )
            for name in _READERS
        ]
        with filled_logs(bench, messages=bench.scale.read, batch=batch) as logs, ExitStack() as stack:
            yield Race(partial(_contenders, stack, logs), subjects, turns(bench.scale.rounds))


def _contenders(stack: ExitStack, logs: _Logs, shape: Shape) -> dict[str, Prepare]:
    path, log = logs[shape]
    files = log_files(path)
    memories = stack.enter_context(mapped(files))
    works: dict[str, Callable[[], None]] = {
        **{name: partial(reader, log) for name, reader in _READERS.items()},
        "os.pread + crc32c, 1 MiB each": partial(_check_files, files),
        "memcpy": partial(copy, memories),
    }
    return {name: counted(work, log.end) for name, work in works.items()}


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


_READERS: dict[str, Callable[[Log], None]] = {"values": _values, "frames": _frames, "records": _records}
