"""Batches: `append_many` at durability `os`, beside writing the bytes of the same frames."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks.measure import Work, alternate
from benchmarks.row import Goal, Row, first_row
from benchmarks.workload import Bench, batches_of, frame_bytes, fresh_log, plain_file
from quivermq.settings import StorageSettings

_SETTINGS = StorageSettings(durability="os")
_GOALS = {100: 5e6, 1000: 8e6}


def append_many(bench: Bench) -> Iterable[Row]:
    """Short rounds, each into a new log: what the code can do while nothing gets into its way."""
    for size, goal in _GOALS.items():
        batches = batches_of(size, bench.scale.many)
        measured = alternate(
            {
                "append_many": partial(_appending, bench, batches),
                "os.write of the same frames": partial(_writing, bench, batches),
            },
            bench.scale.rounds,
        )
        yield first_row(f"append_many({size})", measured, goal=Goal("at least", goal))


def sustained(bench: Bench) -> Iterable[Row]:
    """One long round: with the sync of every second and with new segments."""
    batches = batches_of(100, bench.scale.many)
    repeats = max(1, bench.scale.sustained // bench.scale.many)
    measured = alternate(
        {
            "append_many": partial(_appending, bench, batches, repeats),
            "os.write, synced every second": partial(_writing, bench, batches, repeats),
        },
        rounds=2,
    )
    yield first_row(f"append_many(100), {_millions(repeats * bench.scale.many)}", measured)


@contextmanager
def _appending(bench: Bench, batches: Sequence[list[bytes]], repeats: int = 1) -> Iterator[Work]:
    with fresh_log(bench, _SETTINGS) as log:

        def work() -> int:
            append = log.append_many
            for _ in range(repeats):
                for batch in batches:
                    append(batch)
            return log.end

        yield work


@contextmanager
def _writing(bench: Bench, batches: Sequence[list[bytes]], repeats: int = 1) -> Iterator[Work]:
    frames = [frame_bytes(batch) for batch in batches]
    messages = repeats * sum(map(len, batches))
    with plain_file(bench) as descriptor:

        def work() -> int:
            write = os.write
            for _ in range(repeats):
                for frame in frames:
                    write(descriptor, frame)
            return messages

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
