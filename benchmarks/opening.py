"""Opening a log of a million messages, after a clean end and after `kill -9`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import Prepare, Work, alternate, counted
from benchmarks.row import Goal, Row, first_row
from benchmarks.workload import CHUNK_BYTES, LOG, Bench, chunks_of, fresh_directory, log_files, short_number
from quivermq.disk import SystemDisk
from quivermq.log import DataDirectory
from quivermq.segment import load_index

_ROOT = Path(__file__).parents[1]

# Of a log file whose index does not reach to its end: where the rest begins, and its length.
Tails = Mapping[Path, tuple[int, int]]


def opening(bench: Bench) -> Iterable[Row]:
    """In batches of 100 and in frames of one message: these have the most frames to look at."""
    for batch, messages in ((100, bench.scale.open_batches), (1, bench.scale.open_singles)):
        with fresh_directory(bench.place) as path:
            yield from _rows(bench, path, batch, messages)


def _rows(bench: Bench, path: Path, batch: int, messages: int) -> Iterable[Row]:
    """One log in three states, each made from the one before."""
    shape = f"{short_number(messages)} in frames of {batch}"
    _write_and_kill(path, messages, batch)
    yield _row(bench, path, f"{shape}, killed", _unsynced_tails(path))
    _write_and_kill(path, batch, batch, is_synced=True)
    yield _row(bench, path, f"{shape}, killed when synced", {})
    _open(path).close()
    yield _row(bench, path, f"{shape}, closed", {})


def _row(bench: Bench, path: Path, name: str, tails: Tails) -> Row:
    contenders: dict[str, Prepare] = {
        "open": partial(_opening, path, _index_contents(path)),
        "reading the index files": counted(partial(_index_contents, path), 1),
    }
    if tails:
        size = sum(length for _, length in tails.values())
        limit = f"{size / 1e6:.0f} MB read, written, synced"
        contenders[limit] = counted(partial(_rewrite, tails), 1)
    measured = alternate(contenders, bench.scale.rounds)
    return first_row(f"open {name}", measured, unit="seconds", goal=Goal("below", 0.1))


def _write_and_kill(path: Path, messages: int, batch: int, *, is_synced: bool = False) -> None:
    command = [sys.executable, "-m", "benchmarks.killed_writer", str(path), str(messages), str(batch)]
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
