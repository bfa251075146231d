"""What all benchmarks share: logs and plain files to put messages into, ways to read them."""

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from crc32c import crc32c

from benchmarks.messages import batches_of, columns_of, frame_bytes, random_messages
from benchmarks.scale import MIB, Scale
from benchmarks.shape import SHAPES, Shape
from quivermq import DataDirectory, Log, StorageSettings
from quivermq.disk import Disk

CHUNK_BYTES = 1024 * 1024
LOG = "bench"

# Enough for the log itself and for whatever else this machine is doing meanwhile.
_FREE_FACTOR = 5


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a benchmark may write, and how much it should do."""

    place: Path
    scale: Scale
    shapes: tuple[Shape, ...] = SHAPES
    is_alone: bool = False
    """Without limits and peers: two versions of ours are beside each other instead."""


def short_number(messages: int) -> str:
    if messages >= 1_000_000:
        return f"{messages / 1e6:g} M"
    return f"{messages / 1e3:g} k" if messages >= 1000 else str(messages)


def free_space_obstacle(place: Path, size: int) -> str | None:
    """Why so many bytes cannot be written here; None when they can, with room for what others do."""
    free = shutil.disk_usage(place).free
    if free >= _FREE_FACTOR * size:
        return None
    return f"{free // MIB} MiB are free on the disk, {_FREE_FACTOR * size // MIB} MiB would be needed"


@contextmanager
def fresh_directory(parent: Path) -> Iterator[Path]:
    """An empty directory that goes away again."""
    path = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def fresh_log(bench: Bench, settings: StorageSettings, disk: Disk | None = None) -> Iterator[Log]:
    """An empty log that goes away again."""
    with fresh_directory(bench.place) as path, DataDirectory(path, settings, disk=disk) as data:
        yield data.log(LOG)


@contextmanager
def plain_file(bench: Bench) -> Iterator[int]:
    """The descriptor of an empty file that goes away again."""
    with fresh_directory(bench.place) as path:
        descriptor = os.open(path / "plain", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def filled_log(bench: Bench, *, messages: int, batch: int, shape: Shape) -> Iterator[Path]:
    """The data directory of a log of so many messages, closed; it goes away again."""
    batches = [columns_of(each) for each in batches_of(batch, min(messages, 100 * batch), shape)]
    with fresh_directory(bench.place) as path:
        with DataDirectory(path, StorageSettings(durability="os")) as data:
            log = data.log(LOG)
            for number in count():
                if log.end >= messages:
                    break
                values, others = batches[number % len(batches)]
                log.append_many(values, **others)
        yield path


@contextmanager
def filled_logs(bench: Bench, *, messages: int, batch: int) -> Iterator[dict[Shape, tuple[Path, Log]]]:
    """Open logs of so many messages of either shape, and their data directories."""
    with ExitStack() as stack:
        logs: dict[Shape, tuple[Path, Log]] = {}
        for shape in bench.shapes:
            path = stack.enter_context(filled_log(bench, messages=messages, batch=batch, shape=shape))
            logs[shape] = path, stack.enter_context(DataDirectory(path)).log(LOG)
        yield logs


def stored_bytes(shape: Shape) -> int:
    """What a message takes in a log with its share of a frame."""
    sample = random_messages(1000, shape)
    return len(frame_bytes(sample)) // len(sample)


def log_files(path: Path, suffix: str = ".log") -> list[Path]:
    """The segments, or the indexes, of the log in a data directory, oldest first."""
    return sorted((path / LOG).glob(f"*{suffix}"))


def chunks_of(path: Path) -> Iterator[bytes]:
    """A file's bytes, read as plainly as possible."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        while chunk := os.pread(descriptor, CHUNK_BYTES, position):
            yield chunk
            position += len(chunk)
    finally:
        os.close(descriptor)


@contextmanager
def mapped(paths: Sequence[Path]) -> Iterator[list[memoryview]]:
    """Whole files as memory."""
    with ExitStack() as stack:
        memories = [stack.enter_context(_map(path)) for path in paths]
        yield [stack.enter_context(memoryview(memory)) for memory in memories]


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def check(memories: Sequence[memoryview]) -> None:
    """CRC-32C over all of it, in chunks."""
    for memory in memories:
        for start in range(0, len(memory), CHUNK_BYTES):
            crc32c(memory[start : start + CHUNK_BYTES])


def copy(memories: Sequence[memoryview]) -> None:
    """`memcpy` of all of it, chunk by chunk into the same place."""
    target = memoryview(bytearray(CHUNK_BYTES))
    for memory in memories:
        for start in range(0, len(memory), CHUNK_BYTES):
            chunk = memory[start : start + CHUNK_BYTES]
            target[: len(chunk)] = chunk
