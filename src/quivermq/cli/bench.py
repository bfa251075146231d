"""`quiver bench`: how fast the queue is on this machine, on this disk, or over this network."""

import os
import platform
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated

from typer import Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import Place, open_queue
from quivermq.cli.durations import parse_seconds
from quivermq.cli.output import CommandResult, TextTable, size_text
from quivermq.cli.progress import progress_count
from quivermq.cli.stopping import stopping_orderly
from quivermq.disk import SystemDisk
from quivermq.errors import QuiverError
from quivermq.log.directory import LOCK_NAME
from quivermq.log.entries import DURABILITIES, durability_of
from quivermq.queue.connection import Connection
from quivermq.queue.queue import Queue
from quivermq.settings import Durability

# How late a signal may be noticed.
_TURN_SECONDS = 0.5
_PREFIX = "quiver-bench-"

# Does one call, and returns how many messages it was about; 0 when there are no more.
Call = Callable[[], int]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What came of one measurement. Latencies are those of a call, with all its messages."""

    what: str
    durability: str
    batch: int
    threads: int
    messages: int
    seconds: float
    messages_per_second: float
    bytes_per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float


@answering
def command(
    size: Annotated[int, Option(help="Bytes of a message.", min=1, max=1024 * 1024)] = 100,
    batch: Annotated[int, Option(help="Messages of a batch.", min=1, max=10_000)] = 1000,
    threads: Annotated[int, Option(help="How many threads call at the same time.", min=1, max=256)] = 1,
    duration: Annotated[str, Option(help="How long each measurement takes.")] = "2s",
    durability: Annotated[
        list[str] | None, Option(help="fsync, os or buffered. May be repeated; without it, all of them.")
    ] = None,
    data: Annotated[Path | None, Option(help="The directory whose disk is measured.")] = None,
    server: Annotated[str | None, Option(help="The URL of the broker that is measured.")] = None,
) -> CommandResult:
    """Measure how many messages a second go in and out, and how long a call takes.

    Without `--data` and `--server` in a temporary directory, which may lie in memory: to measure a disk,
    name a directory on it. The environment is not asked, so that no broker is put under load by accident.
    Topics are made for it and deleted at the end.
    """
    chosen = [durability_of(word) for word in durability or DURABILITIES]
    seconds = parse_seconds(duration)
    found: list[BenchResult] = []
    with (
        stopping_orderly(),
        _bench_queue(data, server) as (mq, where),
        progress_count("measured") as advance,
    ):
        for word in chosen:
            for measured in _measure(mq, word, size=size, batch=batch, threads=threads, seconds=seconds):
                found.append(measured)
                advance(1)
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }
    calls = "1 thread calls" if threads == 1 else f"{threads} threads call"
    note = (
        f"measured in {where}: messages of {size} bytes, {calls}, each line for {seconds:g} s;"
        " latencies are those of a call"
    )
    return CommandResult(
        {"where": where, "size": size, **machine, "results": [asdict(each) for each in found]},
        TextTable(
            ("what", "durability", "messages/s", "bytes/s", "p50 ms", "p99 ms", "max ms"),
            [_row(each) for each in found],
        ),
        notes=[note],
    )


@contextmanager
def _bench_queue(data: Place | None, server: str | None) -> Iterator[tuple[Connection, str]]:
    with ExitStack() as stack:
        if data is None and server is None:
            _remove_leftovers()
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX)))
        yield stack.enter_context(open_queue(data, server, create=True)), str(data or server)


def _remove_leftovers() -> None:
    """Take away what a bench left that was killed with no time to do it: nobody holds its lock any more."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        disk = SystemDisk()
        try:
            disk.lock(left / LOCK_NAME, with_directory=True).release()
        except QuiverError:
            # Somebody measures there now, or it is somebody else's.
            continue
        shutil.rmtree(left, ignore_errors=True)


def _measure(
    mq: Connection, durability: Durability, *, size: int, batch: int, threads: int, seconds: float
) -> Iterator[BenchResult]:
    topic = f"{_PREFIX}{secrets.token_hex(4)}"
    mq.create_topic(topic, durability=durability)
    try:
        queue, value = mq.queue(topic), secrets.token_bytes(size)
        values = [value] * batch
        calls: list[tuple[str, int, Call]] = [
            ("put", 1, lambda: _put_one(queue, value)),
            ("put_many", batch, lambda: len(queue.put_many(values))),
            ("get_many + ack", batch, lambda: _get(queue, batch)),
        ]
        for what, per_call, call in calls:
            taken, counted, elapsed = _run(call, threads, seconds)
            taken.sort()
            yield BenchResult(
                what,
                durability,
                per_call,
                threads,
                counted,
                elapsed,
                counted / elapsed,
                counted * size / elapsed,
                _percentile(taken, 0.5),
                _percentile(taken, 0.99),
                taken[-1] * 1000,
            )
    finally:
        mq.delete_topic(topic)


def _put_one(queue: Queue, value: bytes) -> int:
    queue.put(value)
    return 1


def _get(queue: Queue, count: int) -> int:
    messages = queue.get_many(count)
    if messages:
        queue.ack(messages)
    return len(messages)


def _run(call: Call, threads: int, seconds: float) -> tuple[list[float], int, float]:
    """How long each call took, how many messages they were about, and how long all took."""
    start = perf_counter()
    end = start + seconds

    is_stopped = threading.Event()

    def work() -> tuple[list[float], int]:
        taken: list[float] = []
        messages = 0
        before = perf_counter()
        # At least once, however short the time is: what is measured has happened.
        while not taken or (before < end and not is_stopped.is_set()):
            done = call()
            now = perf_counter()
            taken.append(now - before)
            messages += done
            before = now
            if not done:
                break
        return taken, messages

    with ThreadPoolExecutor(threads) as pool:
        try:
            futures = [pool.submit(work) for _ in range(threads)]
            # In turns: a signal that comes just before a wait is noticed when the wait ends.
            while wait(futures, _TURN_SECONDS).not_done:
                continue
            parts = [future.result() for future in futures]
        finally:
            # Whoever interrupts it does not want to wait for the rest of the time.
            is_stopped.set()
    elapsed = perf_counter() - start
    return [time for taken, _ in parts for time in taken], sum(count for _, count in parts), elapsed


def _percentile(ordered: list[float], share: float) -> float:
    """In milliseconds."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def _row(measured: BenchResult) -> tuple[str, ...]:
    what = measured.what if measured.batch == 1 else f"{measured.what}, {measured.batch} a call"
    return (
        what,
        measured.durability,
        f"{measured.messages_per_second:,.0f}",
        size_text(measured.bytes_per_second),
        f"{measured.p50_ms:.3f}",
        f"{measured.p99_ms:.3f}",
        f"{measured.max_ms:.3f}",
    )
