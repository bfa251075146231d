"""Processes that start quickly, because thousands of them are killed: workers, and brokers.

A process pool has imported everything already; for each order on its standard input it forks a process,
which costs a hundredth of a new interpreter. Lines on its standard output, a word and JSON each:

    started <pid>           a process is about to begin
    failed <error>          it ended at what it did not expect
    exited <status>         it has ended
    …                       whatever the process reports

`python -m quivermq.chaos.processes MODULE` is the pool; the module has a function `run_order(order)`. The
one here runs a broker, and all kinds of clients and users of a directory.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import IO, Any

from quivermq.chaos import Violation, expect
from quivermq.chaos.http_clients import HttpClient
from quivermq.chaos.load import Worker, WorkerRun, number_in, prepare, value_of
from quivermq.chaos.system_faults import JumpingClock, allow_tracing, move_to_small_disk
from quivermq.engine import engine_of
from quivermq.errors import LeaseExpired
from quivermq.opening import connect, open_directory
from quivermq.queue.connection import Connection
from quivermq.server.run import serve
from quivermq.topic.defaults import load_settings

WORKERS = "quivermq.chaos.processes"
# Longer than a short lease, and than a retry takes to be due.
_POISON_WAIT_S = 1.5

Line = tuple[str, list[Any]]


class ProcessPool:
    """Starts processes, one at a time, reads what they report, and kills them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders: IO[str] = process.stdin
        self._lines: IO[str] = process.stdout
        self.pid = 0

    def start(self, **order: Any) -> int:
        """Start a process, and return its id."""
        self._orders.write(json.dumps(order) + "\n")
        self._orders.flush()
        word, [self.pid] = self.read()
        assert word == "started"
        return self.pid

    def read(self) -> Line:
        """The next line. What a process wrote into the pipe outlives it. Raises Violation if it failed."""
        line = self._lines.readline()
        assert line, "the process pool is gone"
        word, _, rest = line.partition(" ")
        reported = json.loads(rest)
        if word == "failed":
            raise Violation(reported[0])
        return word, reported

    def reset(self) -> None:
        """End a process that was left behind, whatever it was doing, so that another one can start."""
        if self.pid:
            # It may have ended by itself, and nobody has read that yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            # The pool itself may be gone, and then nobody reports the end.
            while (line := self._lines.readline()) and not line.startswith("exited "):
                continue
            self.pid = 0

    def kill(self) -> list[Line]:
        """kill -9. Returns what it reported before that and nobody has read yet."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait(signal.SIGKILL)

    def wait(self, status: int) -> list[Line]:
        """What it still reports until it ends, which it has to do with that status."""
        lines: list[Line] = []
        while (line := self.read())[0] != "exited":
            lines.append(line)
        self.pid = 0
        expect(line[1] == [status], f"it died of something else: {line[1]}")
        return lines


@contextmanager
def process_pool(module: str = WORKERS) -> Iterator[ProcessPool]:
    """A pool whose processes run orders of `module`. Nothing of it is left behind.

    What the processes log is not shown: what matters, they report.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "quivermq.chaos.processes", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # A Ctrl-C is for whoever runs this, who then ends the processes.
        start_new_session=True,
    ) as process:
        pool = ProcessPool(process)
        try:
            yield pool
        finally:
            pool.reset()
            process.kill()


def report(word: str, *rest: Any) -> None:
    """Write a line, in a single call: a pipe takes it as a whole, however soon the writer dies."""
    os.write(1, f"{word} {json.dumps(rest)}\n".encode())


def _run_and_exit(module: Any, order: dict[str, Any]) -> None:
    status = 1
    try:
        report("started", os.getpid())
        module.run_order(order)
        status = 0
    except BaseException:
        report("failed", traceback.format_exc())
    finally:
        os._exit(status)


def _serve_orders(module: Any) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run_and_exit(module, json.loads(line))
        _, status = os.waitpid(pid, 0)
        report("exited", status)


class BrokerProcess:
    """A broker in a process of its own, which is killed, stopped and started again over one directory."""

    def __init__(
        self,
        pool: ProcessPool,
        path: Path,
        *,
        clock: Path | None = None,
        disk_bytes: int | None = None,
        **settings: object,
    ) -> None:
        self._pool = pool
        self.path = path
        self._order: dict[str, Any] = {
            "kind": "broker",
            "path": str(path),
            "clock": None if clock is None else str(clock),
            "disk_bytes": disk_bytes,
            "environment": {f"QUIVER_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self.port = 0
        self.pid = 0
        self._clients: list[HttpClient | Connection] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "BrokerProcess":
        """Return once it serves. On the port it had before, so that clients find it again."""
        self.pid = self._pool.start(**self._order, port=self.port)
        word, [self.port] = self._pool.read()
        assert word == "serving"
        return self

    def kill(self) -> None:
        """kill -9."""
        self._pool.kill()
        self._forget()

    def stop(self) -> None:
        """Tell it to end, and wait until it has, in good order."""
        os.kill(self.pid, signal.SIGTERM)
        self._pool.wait(0)
        self._forget()

    def _forget(self) -> None:
        self.pid = 0
        for client in self._clients:
            client.close()
        self._clients.clear()

    def restart(self) -> None:
        """End it without a warning, and start it again."""
        self.kill()
        self.start()

    def client(self) -> HttpClient:
        """A client of the standard library, closed when this broker ends."""
        client = HttpClient(self.port)
        self._clients.append(client)
        return client

    def connect(self, **options: Any) -> Connection:
        """A client of the project's own, which never asks twice, closed when this broker ends."""
        connection = connect(self.url, **{"retries": 0, **options})
        self._clients.append(connection)
        return connection


@contextmanager
def broker(pool: ProcessPool, path: Path, **options: Any) -> Iterator[BrokerProcess]:
    """A broker that serves a directory; killed at the end, unless it was stopped.

    Options are those of BrokerProcess, and settings as variables of the environment without their QUIVER_:
    storage__durability="os".
    """
    process = BrokerProcess(pool, path, **options).start()
    try:
        yield process
    finally:
        if process.pid:
            process.kill()


# What the processes of this module do.


def run_order(order: dict[str, Any]) -> None:
    """Do what the order says, until somebody ends it."""
    kinds: dict[str, Callable[..., None]] = {
        "worker": _work,
        "broker": _serve,
        "retention": _retain,
        "consumer": _consume,
        "poisoned": _take_poison,
    }
    kinds[order.pop("kind")](**order)


def _work(path: str, settings: dict[str, Any], run: dict[str, Any]) -> None:
    engine = open_directory(path)
    prepare(engine, settings)
    Worker(engine, WorkerRun(**run), report).run()


def _serve(
    path: str,
    environment: dict[str, str],
    clock: str | None = None,
    port: int = 0,
    disk_bytes: int | None = None,
) -> None:
    """As `quiver serve` does. Its log goes into a file beside the directory."""
    allow_tracing()
    if disk_bytes is not None:
        move_to_small_disk(Path(path), disk_bytes)
    log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    settings = load_settings(environ=environment).settings
    engine = open_directory(path, settings, clock=None if clock is None else JumpingClock(Path(clock)))
    serve(
        engine_of(engine),
        replace(settings.server, port=port),
        ready=lambda server: report("serving", server.port),
    )


def _retain(path: str, number: int) -> None:
    """Put, take and remove what is finished, all the time."""
    engine = open_directory(path)
    if "kept" not in engine.topics():
        engine.create_topic("kept", segment_messages=4, delete_finished=True, durability="os")
    queue = engine.queue("kept")
    for first in count(number, 3):
        numbers = list(range(first, first + 3))
        report("try", "put", numbers)
        queue.put_many([value_of(each) for each in numbers])
        report("did", "put", numbers)
        taken = queue.get_many(2, lease=3600)
        report("try", "ack", [number_in(delivery.value) for delivery in taken])
        queue.ack(taken)
        engine.compact()


def _consume(place: str, topic: str, lease_s: float) -> None:
    """Take a message, and finish it only when told to go on."""
    # Before there are threads, so that the signal waits until somebody asks for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    with _opened(place) as mq:
        queue = mq.queue(topic)
        try:
            # The lease is renewed as long as this process runs.
            with queue.process(timeout=30, lease=lease_s) as message:
                assert message is not None, "there is no message"
                report("took", message.receipt, message.attempt)
                signal.sigwait({signal.SIGUSR1})
                if not place.startswith("http"):
                    again = queue.get(timeout=30)
                    report("again", None if again is None else again.attempt)
            report("acked")
        except LeaseExpired:
            report("refused")


def _take_poison(place: str, topic: str, lease_s: float, crashes: bool) -> None:
    """Take a message that nobody survives: the process dies, or what handles it raises."""
    with _opened(place) as mq:
        try:
            with mq.queue(topic).process(timeout=_POISON_WAIT_S, lease=lease_s) as message:
                if message is None:
                    report("nothing")
                    return
                report("took", message.attempt)
                if crashes:
                    os._exit(1)
                raise ValueError("it tastes of almonds")
        except ValueError:
            report("raised")


def _opened(place: str) -> Connection:
    """A directory, or a broker by its address."""
    return connect(place, retries=0) if place.startswith("http") else open_directory(place)


if __name__ == "__main__":
    _serve_orders(import_module(sys.argv[1]))
