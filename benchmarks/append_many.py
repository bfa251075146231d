"""Batches: `append_many` at durability `os`, beside writing the bytes of the same frames."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks.measure import Prepare, Work
from benchmarks.messages import Columns, batches_of, columns_of, frame_bytes
from benchmarks.race import Race, Subject, turns
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.workload import Bench, fresh_log, plain_file
from quivermq import StorageSettings

_SETTINGS = StorageSettings(durability="os")
_GOALS = {100: 5e6, 1000: 8e6}
_APPEND = "append_many"


def append_many(bench: Bench) -> Iterable[Race]:
    """Short rounds, each into a new log: what the code can do while nothing gets into its way."""
    limit = "os.write of the same frames"
    for size, goal in _GOALS.items():
        subject = Subject(f"append_many({size})", _APPEND, Goal("at least", goal))
        yield Race(partial(_contenders, bench, size, 1, limit), [subject], turns(bench.scale.rounds))


def sustained(bench: Bench) -> Iterable[Race]:
    """One long round: with the sync of every second and with new segments."""
    repeats = max(1, bench.scale.sustained // bench.scale.many)
    limit = "os.write, synced every second"
    subject = Subject(f"append_many(100), {_millions(repeats * bench.scale.many)}", _APPEND)
    yield Race(partial(_contenders, bench, 100, repeats, limit), [subject], turns(2))


def _contenders(bench: Bench, size: int, repeats: int, limit: str, shape: Shape) -> dict[str, Prepare]:
    batches = [columns_of(batch) for batch in batches_of(size, bench.scale.many, shape)]
    frames = [frame_bytes(batch) for batch in batches_of(size, bench.scale.many, shape)]
    return {
        _APPEND: partial(_appending, bench, batches, repeats),
        limit: partial(_writing, bench, frames, repeats, size),
    }


@contextmanager
def _appending(bench: Bench, batches: Sequence[Columns], repeats: int) -> Iterator[Work]:
    with fresh_log(bench, _SETTINGS) as log:

        def work() -> int:
            append = log.append_many
            for _ in range(repeats):
                for values, others in batches:
                    append(values, **others)
            return log.end

        yield work


@contextmanager
def _writing(bench: Bench, frames: Sequence[bytes], repeats: int, size: int) -> Iterator[Work]:
    with plain_file(bench) as descriptor:

        def work() -> int:
            write = os.write
            for _ in range(repeats):
                for frame in frames:
                    write(descriptor, frame)
            return repeats * len(frames) * size

        with _synced_every_second(descriptor):
            yield work


@contextmanager
def _synced_every_second(descriptor: int) -> Iterator[None]:
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(_SETTINGS.fsync_interval_ms / 1000):
            os.fdatasync(descriptor)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _millions(messages: int) -> str:
    return f"{messages / 1e6:g} M at a stretch"
