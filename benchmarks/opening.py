"""Opening a log of a million messages, after a clean end and after `kill -9`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import Prepare, Work, counted
from benchmarks.race import Race, Subject, seconds, turns
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.workload import CHUNK_BYTES, LOG, Bench, chunks_of, fresh_directory, log_files, short_number
from quivermq import DataDirectory
from quivermq.disk import SystemDisk
from quivermq.segment import load_index

_ROOT = Path(__file__).parents[1]
_OPEN = "open"

# Of a log file whose index does not reach to its end: where the rest begins, and its length.
Tails = Mapping[Path, tuple[int, int]]


def opening(bench: Bench) -> Iterable[Race]:
    """In batches of 100 and in frames of one message: these have the most frames to look at."""
    for batch, messages in ((100, bench.scale.open_batches), (1, bench.scale.open_singles)):
        with fresh_directory(bench.place) as path:
            yield from _races(bench, path, batch, messages)


def _races(bench: Bench, path: Path, batch: int, messages: int) -> Iterable[Race]:
    """One log of either shape in three states, each made from the one before."""
    name = f"open {short_number(messages)} in frames of {batch}"
    paths = {shape: path / shape for shape in bench.shapes}
    for shape, place in paths.items():
        _write_and_kill(place, messages, batch, shape)
    yield _race(bench, paths, f"{name}, killed", has_tails=True)
    for shape, place in paths.items():
        _write_and_kill(place, batch, batch, shape, is_synced=True)
    yield _race(bench, paths, f"{name}, killed when synced")
    for place in paths.values():
        _open(place).close()
    yield _race(bench, paths, f"{name}, closed")


def _race(bench: Bench, paths: Mapping[Shape, Path], name: str, *, has_tails: bool = False) -> Race:
    goal = Goal("below", 0.1)
    subject = Subject(name, _OPEN, goal, goal, figure=seconds)
    return Race(
        partial(_contenders, paths, has_tails), [subject], turns(bench.scale.rounds), unit="seconds"
    )


def _contenders(paths: Mapping[Shape, Path], has_tails: bool, shape: Shape) -> dict[str, Prepare]:
    path = paths[shape]
    contenders: dict[str, Prepare] = {
        _OPEN: partial(_opening, path, _index_contents(path)),
        "reading the index files": counted(partial(_index_contents, path), 1),
    }
    if has_tails:
        tails = _unsynced_tails(path)
        size = sum(length for _, length in tails.values())
        limit = f"{size / 1e6:.0f} MB read, written, synced"
        contenders[limit] = counted(partial(_rewrite, tails), 1)
    return contenders


def _write_and_kill(
    path: Path, messages: int, batch: int, shape: Shape, *, is_synced: bool = False
) -> None:
    numbers = [str(messages), str(batch)]
    command = [sys.executable, "-m", "benchmarks.killed_writer", str(path), *numbers, shape]
    if is_synced:
        command.append("--synced")
    ended = subprocess.run(command, cwd=_ROOT, check=False)
    if ended.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended with {ended.returncode} instead of being killed")


def _open(path: Path) -> DataDirectory:
    data = DataDirectory(path)
    data.log(LOG)
    return data


@contextmanager
def _opening(path: Path, indexes: Mapping[Path, bytes]) -> Iterator[Work]:
    """Opening, with the log afterwards as it was before: only the indexes are changed by it."""
    opened: list[DataDirectory] = []

    def work() -> int:
        opened.append(_open(path))
        return 1

    yield work
    opened[0].close()
    for index, content in indexes.items():
        index.write_bytes(content)


def _index_contents(path: Path) -> dict[Path, bytes]:
    return {file: b"".join(chunks_of(file)) for file in log_files(path, ".idx")}


def _unsynced_tails(path: Path) -> Tails:
    """What recovery has to look at."""
    tails = {}
    for file in log_files(path):
        index = load_index(SystemDisk(), path / LOG, int(file.stem))
        start = 0 if index is None else index.mark[2]
        tails[file] = (start, file.stat().st_size - start)
    return tails


def _rewrite(tails: Tails) -> None:
    """What recovery promises, done plainly: the bytes are read, written over themselves and synced."""
    for file, (start, length) in tails.items():
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        for position in range(start, start + length, CHUNK_BYTES):
            chunk = os.pread(descriptor, CHUNK_BYTES, position)
            os.pwrite(descriptor, chunk, position)
        os.fdatasync(descriptor)
        os.close(descriptor)
