"""Single messages at `buffered` and at `os`: what one call costs."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks.measure import Work, alternate, ready
from benchmarks.row import Goal, Row, first_row
from benchmarks.workload import Bench, batches_of, frame_bytes, fresh_log, plain_file
from quivermq.frame import encode
from quivermq.settings import Durability, StorageSettings

_BATCH = StorageSettings().batch_messages


def append_one(bench: Bench) -> Iterable[Row]:
    """The buffered append, which only has to take a message, and the one that writes each."""
    yield _buffered(bench)
    yield _one_write_each(bench)


def _buffered(bench: Bench) -> Row:
    batches = batches_of(_BATCH, bench.scale.buffered)
    values = [value for batch in batches for value in batch]
    frames = [frame_bytes(batch) for batch in batches]
    measured = alternate(
        {
            "append": partial(_appending, bench, values, "buffered"),
            "lock + list.append, in Python": ready(partial(_taken, values)),
            f"encode + os.write of {_BATCH}": partial(_encoding, bench, batches),
            f"os.write of frames of {_BATCH}": partial(_writing, bench, frames, _BATCH),
        },
        bench.scale.rounds,
    )
    return first_row("append at buffered", measured, goal=Goal("at least", 1.2e6))


def _one_write_each(bench: Bench) -> Row:
    values = batches_of(bench.scale.single, bench.scale.single)[0]
    frames = [frame_bytes([value]) for value in values]
    measured = alternate(
        {
            "append": partial(_appending, bench, values, "os"),
            "os.write of one frame each": partial(_writing, bench, frames, 1),
        },
        bench.scale.rounds,
    )
    return first_row("append at os", measured)


@contextmanager
def _appending(bench: Bench, values: Sequence[bytes], durability: Durability) -> Iterator[Work]:
    with fresh_log(bench, StorageSettings(durability=durability)) as log:

        def work() -> int:
            append = log.append
            for value in values:
                append(value)
            # What is still in the buffer has cost nothing yet.
            log.flush()
            return log.end

        yield work


def _taken(values: Sequence[bytes]) -> int:
    """The least that a thread-safe buffer in Python does for each message."""
    lock = threading.Lock()
    taken: list[bytes] = []
    for value in values:
        with lock:
            taken.append(value)
    return len(taken)


@contextmanager
def _encoding(bench: Bench, batches: Sequence[list[bytes]]) -> Iterator[Work]:
    with plain_file(bench) as descriptor:

        def work() -> int:
            for batch in batches:
                os.write(descriptor, bytes(encode(batch, timestamp=0)))
            return sum(map(len, batches))

        yield work


@contextmanager
def _writing(bench: Bench, frames: Sequence[bytes], messages_each: int) -> Iterator[Work]:
    with plain_file(bench) as descriptor:

        def work() -> int:
            write = os.write
            for frame in frames:
                write(descriptor, frame)
            return messages_each * len(frames)

        yield work
