"""`quiver bench`: how fast the queue is on this machine, on this disk, or over this network."""

import os
import platform
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from quivermq.cli.durations import parse_seconds
from quivermq.cli.output import JsonOption, print_json, print_table, progress_count, say, size_text
from quivermq.cli.place import AnyEngine, AnyQueue, open_queue
from quivermq.cli.stopping import stopping_orderly
from quivermq.disk import SystemDisk
from quivermq.errors import InvalidRequest, QuiverError
from quivermq.log.directory import LOCK_NAME

# How late a signal may be noticed.
_TURN_SECONDS = 0.5
_PREFIX = "quiver-bench-"
_DURABILITIES = ("fsync", "os", "buffered")

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


def command(
    size: Annotated[int, typer.Option(help="Bytes of a message.", min=1, max=1024 * 1024)] = 100,
    batch: Annotated[int, typer.Option(help="Messages of a batch.", min=1, max=10_000)] = 1000,
    threads: Annotated[
        int, typer.Option(help="How many threads call at the same time.", min=1, max=256)
    ] = 1,
    duration: Annotated[str, typer.Option(help="How long each measurement takes.")] = "2s",
    durability: Annotated[
        list[str] | None,
        typer.Option(help="fsync, os or buffered. May be repeated; without it, all of them."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The directory whose disk is measured.")] = None,
    server: Annotated[str | None, typer.Option(help="The URL of the broker that is measured.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how many messages a second go in and out, and how long a call takes.

    Without `--data` and `--server` in a temporary directory, which may lie in memory: to measure a disk,
    name a directory on it. The environment is not asked, so that no broker is put under load by accident.
    Topics are made for it and deleted at the end.
    """
    chosen = durability or list(_DURABILITIES)
    if unknown := set(chosen) - set(_DURABILITIES):
        raise InvalidRequest(
            f"durability is one of {', '.join(_DURABILITIES)}, not {sorted(unknown)[0]!r:.80}"
        )
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
    if as_json:
        machine = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        }
        print_json({"where": where, "size": size, **machine, "results": [asdict(each) for each in found]})
        return
    print_table(
        ("what", "durability", "messages/s", "bytes/s", "p50 ms", "p99 ms", "max ms"),
        [_row(each) for each in found],
    )
    calls = "1 thread calls" if threads == 1 else f"{threads} threads call"
    say(
        f"measured in {where}: messages of {size} bytes, {calls}, each line for {seconds:g} s;"
        " latencies are those of a call"
    )


@contextmanager
def _bench_queue(data: Path | None, server: str | None) -> Iterator[tuple[AnyEngine, str]]:
    if data is not None or server is not None:
        with open_queue(data, server, create=True) as mq:
            yield mq, str(data or server)
        return
    _remove_leftovers()
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX) as directory,
        open_queue(Path(directory), None, create=True) as mq,
    ):
        yield mq, directory


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
    mq: AnyEngine, durability: str, *, size: int, batch: int, threads: int, seconds: float
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


def _put_one(queue: AnyQueue, value: bytes) -> int:
    queue.put(value)
    return 1


def _get(queue: AnyQueue, count: int) -> int:
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
