"""Single messages at `buffered` and at `os`: what one call costs."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks.measure import Prepare, Work, ready
from benchmarks.messages import AnyMessage, Columns, batches_of, call_each, columns_of, frame_bytes
from benchmarks.race import Race, Subject, turns
from benchmarks.row import Goal
from benchmarks.shape import TIME_US, Shape
from benchmarks.workload import Bench, fresh_log, plain_file
from quivermq import StorageSettings
from quivermq.frame import encode
from quivermq.settings import Durability

_BATCH = StorageSettings().batch_messages
_APPEND = "append"


def append_one(bench: Bench) -> Iterable[Race]:
    """The buffered append, which only has to take a message, and the one that writes each."""
    run = turns(bench.scale.rounds)
    buffered = Subject("append at buffered", _APPEND, Goal("at least", 1.2e6))
    yield Race(partial(_buffered, bench), [buffered], run)
    yield Race(partial(_one_write_each, bench), [Subject("append at os", _APPEND)], run)


def _buffered(bench: Bench, shape: Shape) -> dict[str, Prepare]:
    batches = batches_of(_BATCH, bench.scale.buffered, shape)
    messages = [message for batch in batches for message in batch]
    frames = [frame_bytes(batch) for batch in batches]
    return {
        _APPEND: partial(_appending, bench, messages, "buffered"),
        "lock + list.append, in Python": ready(partial(_taken, messages)),
        f"encode + os.write of {_BATCH}": partial(
            _encoding, bench, [columns_of(batch) for batch in batches]
        ),
        f"os.write of frames of {_BATCH}": partial(_writing, bench, frames, _BATCH),
    }


def _one_write_each(bench: Bench, shape: Shape) -> dict[str, Prepare]:
    messages = batches_of(bench.scale.single, bench.scale.single, shape)[0]
    frames = [frame_bytes([message]) for message in messages]
    return {
        _APPEND: partial(_appending, bench, messages, "os"),
        "os.write of one frame each": partial(_writing, bench, frames, 1),
    }


@contextmanager
def _appending(bench: Bench, messages: Sequence[AnyMessage], durability: Durability) -> Iterator[Work]:
    with fresh_log(bench, StorageSettings(durability=durability)) as log:

        def work() -> int:
            call_each(log.append, messages)
            # What is still in the buffer has cost nothing yet.
            log.flush()
            return log.end

        yield work


def _taken(messages: Sequence[AnyMessage]) -> int:
    """The least that a thread-safe buffer in Python does for each message."""
    lock = threading.Lock()
    taken: list[AnyMessage] = []
    for message in messages:
        with lock:
            taken.append(message)
    return len(taken)


@contextmanager
def _encoding(bench: Bench, batches: Sequence[Columns]) -> Iterator[Work]:
    with plain_file(bench) as descriptor:

        def work() -> int:
            for values, others in batches:
                os.write(descriptor, bytes(encode(values, **{"timestamp": TIME_US, **others})))
            return sum(len(values) for values, _ in batches)

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
