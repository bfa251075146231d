"""Opening a queue of a million unfinished messages, many of them in flight, until the first one is had."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import quivermq
from benchmarks.leaving_worker import RECEIPTS, TOPIC, value_at
from benchmarks.measure import Prepare, Work, counted
from benchmarks.race import Race, Subject, seconds, turns
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.workload import Bench, chunks_of, fresh_directory, short_number

_ROOT = Path(__file__).parents[1]
_OPEN = "open"
_GOAL = Goal("below", 1.0)
# Of the unfinished messages, one in so many is in flight.
_IN_FLIGHT = 10


def reopening(bench: Bench) -> Iterable[Race]:
    """Leases of one message each make the longest journal; `kill -9` leaves the most to recover."""
    for end, leased in (("killed", 1), ("killed", 100), ("closed", 1)):
        yield from _race(bench, end, leased)


def _race(bench: Bench, end: str, leased: int) -> Iterable[Race]:
    messages = bench.scale.reopened
    in_flight = messages // _IN_FLIGHT
    how = "singly" if leased == 1 else f"by {leased}"
    name = f"reopen {short_number(messages)}, {short_number(in_flight)} leased {how}, {end}"
    subject = Subject(name, _OPEN, _GOAL, _GOAL, figure=seconds)
    with fresh_directory(bench.place) as path:

        def contenders(shape: Shape) -> dict[str, Prepare]:
            left = path / shape
            _leave(left, messages, in_flight, leased, end, shape)
            return {
                _OPEN: partial(_opening, bench, left, messages, in_flight),
                "reading all of its files": counted(partial(_read, left), 1),
            }

        yield Race(contenders, [subject], turns(bench.scale.reopen_rounds), unit="seconds")


def _leave(path: Path, messages: int, in_flight: int, leased: int, end: str, shape: Shape) -> None:
    numbers = map(str, (messages, in_flight, leased))
    command = [sys.executable, "-m", "benchmarks.leaving_worker", str(path), *numbers, end, shape]
    ended = subprocess.run(command, cwd=_ROOT, check=False)
    if ended.returncode != (-signal.SIGKILL if end == "killed" else 0):
        raise RuntimeError(f"the worker ended with {ended.returncode} instead of being {end}")


@contextmanager
def _opening(bench: Bench, path: Path, messages: int, in_flight: int) -> Iterator[Work]:
    """A copy, because opening changes what is opened; it is synced, as the original is by now."""
    with fresh_directory(bench.place) as place:
        copy = shutil.copytree(path, place / "copy")
        _sync(copy)
        opened: list[tuple[quivermq.Connection, quivermq.Delivery | None]] = []

        def work() -> int:
            engine = quivermq.open(copy)
            opened.append((engine, engine.queue(TOPIC).get()))
            return 1

        yield work
        engine, message = opened[0]
        with engine:
            _check(engine, message, messages, in_flight, json.loads((copy / RECEIPTS).read_text()))


def _check(
    engine: quivermq.Connection,
    message: quivermq.Delivery | None,
    messages: int,
    in_flight: int,
    receipts: list[str],
) -> None:
    """All leases are there, and hold; the first message that comes is the first that nobody had."""
    queue = engine.queue(TOPIC)
    if message is None or message.value != value_at(in_flight):
        raise RuntimeError(f"the first message after opening is {message}")
    message.ack()
    queue.ack(receipts)
    stats = queue.stats()
    found = (stats.pending, stats.in_flight, stats.retrying)
    expected = (messages - in_flight - 1, in_flight - len(receipts), 0)
    if found != expected:
        raise RuntimeError(f"{found} messages are pending, in flight and retrying instead of {expected}")
    last = queue.read(0, messages - 1)
    if [record.value for record in last] != [value_at(messages - 1)]:
        raise RuntimeError("the last message is not the one that was put last")


def _sync(path: Path) -> None:
    for file in _files(path):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(descriptor)
        os.close(descriptor)


def _read(path: Path) -> int:
    return sum(len(chunk) for file in _files(path) for chunk in chunks_of(file))


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()]
