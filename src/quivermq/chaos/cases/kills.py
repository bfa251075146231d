"""kill -9 at random moments, again and again in one directory.

Under a load that uses everything, and in the middle of retention, of shortening journals, and of sending
dead letters back.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from http.client import HTTPException
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from quivermq.chaos import CheckedThread, Violation, expect
from quivermq.chaos.history import LoadHistory
from quivermq.chaos.http_clients import HttpClient
from quivermq.chaos.load import Worker, WorkerRun, number_in, prepare
from quivermq.chaos.processes import BrokerProcess
from quivermq.chaos.trial import DAY_S, Trial, opened_to_look, read_all
from quivermq.errors import Closing, Unreachable
from quivermq.frame import encode
from quivermq.model.json import FRAME

_STEPS_MAX = 60
# Not right behind a step, but somewhere between two.
_MOMENT_S_MAX = 0.003
_CYCLES_BETWEEN_LOOKS = 10

_RETENTION_STEPS_MAX = 30
_RETENTION_NUMBERS = 1000

_TOPIC, _GROUP = "orders", "billing"
_PUBLISHERS, _CONSUMERS = 3, 2
_WAITS = "a client waits for a broker that is gone"


def kill_engine(trial: Trial, durability: str, ordering: str = "none", *, tidies: bool = False) -> None:
    """A process that has the directory open itself, and dies with it."""
    history, run = LoadHistory(), WorkerRun(0, tidies=tidies)
    settings = {"durability": durability, "ordering": ordering}
    with trial.process_pool() as pool:
        for number in range(trial.cycles):
            pool.start(kind="worker", path=str(trial.data), settings=settings, run=asdict(run))
            lines = [pool.read() for _ in range(_lines_before_kill(trial.rng))]
            _pause(trial.rng.uniform(0, _MOMENT_S_MAX))
            for word, rest in (*lines, *pool.kill()):
                history.note(word, *rest)
            run = history.next_run(number + 1, tidies=tidies)
            trial.tried += 1
            _look_now_and_then(trial, history, number)
    _look_at_the_end(trial, history)


def kill_broker(trial: Trial, durability: str, ordering: str = "none", *, tidies: bool = False) -> None:
    """A broker that dies under its clients: one that uses everything, and a crowd of simple ones."""
    history, run, crowd = LoadHistory(), WorkerRun(0, tidies=tidies), _Crowd(trial.seed)
    settings = {"durability": durability, "ordering": ordering}
    with trial.broker(storage__durability=durability) as process:
        for number in range(trial.cycles):
            with crowd.at_work(process):
                load = _LoadThread(process.connect(), run, settings, history)
                load.wait_for(_lines_before_kill(trial.rng))
                _pause(trial.rng.uniform(0, _MOMENT_S_MAX))
                process.kill()
                load.end()
            run = history.next_run(number + 1, tidies=tidies)
            trial.tried += 1
            _look_now_and_then(trial, history, number)
            process.start()
        process.kill()
    _look_at_the_end(trial, history)
    crowd.check(trial.data)


def tidy_engine(trial: Trial) -> None:
    """A worker that mostly gives messages up, sends them back, and shortens files."""
    kill_engine(trial, "os", tidies=True)
    check_files(trial.data)


def tidy_broker(trial: Trial) -> None:
    """The same, asked of a broker that is killed."""
    kill_broker(trial, "os", tidies=True)
    check_files(trial.data)


def _lines_before_kill(rng: Random) -> int:
    return rng.choice((0, rng.randint(1, _STEPS_MAX)))


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _look_now_and_then(trial: Trial, history: LoadHistory, number: int) -> None:
    if number % _CYCLES_BETWEEN_LOOKS == _CYCLES_BETWEEN_LOOKS - 1:
        with opened_to_look(trial.data) as opened:
            history.check(opened)
            expect(opened.verify().is_sound, "a log is damaged")


def _look_at_the_end(trial: Trial, history: LoadHistory) -> None:
    with opened_to_look(trial.data, later_s=DAY_S) as opened:
        history.check_finished(opened)
        report = opened.verify()
        expect(report.is_sound, f"a log is damaged: {report.findings}")


class _LoadThread:
    """A worker in a thread, until its broker is gone: of its last step nobody knows anything."""

    def __init__(
        self, connection: Any, run: WorkerRun, settings: dict[str, Any], history: LoadHistory
    ) -> None:
        self._connection = connection
        self._history = history
        self._lines = threading.Semaphore(0)
        self._thread = CheckedThread(partial(self._work, run, settings), Unreachable, Closing)

    def wait_for(self, lines: int) -> None:
        """Return once it has reported so much, or has ended."""
        for _ in range(lines):
            while not self._lines.acquire(timeout=0.1):
                if self._thread.is_over:
                    return

    def end(self) -> None:
        """The broker is gone. Raises what the worker raised that was not because of that."""
        self._thread.end(_WAITS)
        self._connection.close()

    def _work(self, run: WorkerRun, settings: dict[str, Any]) -> None:
        prepare(self._connection, settings)
        Worker(self._connection, run, self._note).run()

    def _note(self, word: str, *rest: Any) -> None:
        self._history.note(word, *rest)
        self._lines.release()


class _Crowd:
    """Simple clients beside a worker: many publish and take at once, until their broker is gone."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._names = count()
        self._lock = threading.Lock()
        self._tried: set[str] = set()
        self._put: set[str] = set()
        self._acked: set[str] = set()
        self._maybe_acked: set[str] = set()

    @contextmanager
    def at_work(self, process: BrokerProcess) -> Iterator[None]:
        """They work until the broker is gone, which it has to be when this ends."""
        acts: list[Callable[[HttpClient], None]] = [self._consume] * _CONSUMERS
        seeds = [f"{self._seed}/{number}/{process.pid}" for number in range(_PUBLISHERS)]
        acts += [partial(self._publish, Random(seed)) for seed in seeds]
        threads = [
            # Of the last call nobody knows anything.
            CheckedThread(partial(_repeat, act, process.port), OSError, HTTPException)
            for act in acts
        ]
        yield
        for thread in threads:
            thread.end(_WAITS)

    def _publish(self, rng: Random, client: HttpClient) -> None:
        """Put messages in one of the ways there are."""
        names = [f"m{next(self._names)}" for _ in range(rng.choice((1, 1, 5, 50)))]
        with self._lock:
            self._tried.update(names)
        path = f"/v1/topics/{_TOPIC}/messages"
        if len(names) == 1 and rng.random() < 0.5:
            answer = client.call("POST", path, names[0].encode(), content_type="text/plain")
        elif len(names) < 50:
            answer = client.call("POST", path, {"messages": [{"value": name} for name in names]})
        else:
            frame = bytes(encode([name.encode() for name in names], timestamp=1))
            answer = client.call("POST", path, frame, content_type=FRAME)
        expect(answer.is_done, f"a publish was refused: {answer}")
        with self._lock:
            self._put.update(names)

    def _consume(self, client: HttpClient) -> None:
        """Take messages and acknowledge them."""
        messages = client.receive(_TOPIC, _GROUP, 20, wait_ms=1000, lease_ms=3_600_000)
        values = {message["value"] for message in messages}
        with self._lock:
            if again := values & self._acked:
                raise Violation(f"acknowledged, and delivered again: {sorted(again)[:10]}")
            self._maybe_acked |= values
        if messages:
            answer = client.settle("ack", _TOPIC, _GROUP, [message["receipt"] for message in messages])
            expect(answer.is_done, f"an ack was refused: {answer}")
            with self._lock:
                self._acked |= values

    def check(self, path: Path) -> None:
        """Everything that was put is there once, and comes to somebody unless it was acknowledged."""
        with opened_to_look(path, later_s=DAY_S) as engine:
            if _TOPIC not in engine.topics():
                expect(not self._put, "the topic is gone")
                return
            queue = engine.queue(_TOPIC, group=_GROUP)
            stored = Counter(record.value.decode() for record in read_all(queue))
            left: set[str] = set()
            while taken := queue.get_many(10_000):
                left.update(delivery.value.decode() for delivery in taken)
        expect(self._put <= stored.keys(), f"lost: {sorted(self._put - stored.keys())[:10]}")
        expect(stored.keys() <= self._tried, "something is there that nobody put")
        expect(not stored or max(stored.values()) == 1, f"stored twice: {stored.most_common(3)}")
        expect(left.isdisjoint(self._acked), "acknowledged, and delivered again")
        expect(self._put - self._maybe_acked <= left, "stored, but nobody gets it")


def _repeat(act: Callable[[HttpClient], None], port: int) -> None:
    with closing(HttpClient(port)) as client:
        while True:
            act(client)


def retention(trial: Trial) -> None:
    """Segments go as soon as they are finished: never one that is not, and never in part."""
    put: set[int] = set()
    tried: set[int] = set()
    maybe_acked: set[int] = set()
    with trial.process_pool() as pool:
        for cycle in range(trial.cycles):
            pool.start(kind="retention", path=str(trial.data), number=cycle * _RETENTION_NUMBERS)
            lines = [pool.read() for _ in range(trial.rng.randint(0, _RETENTION_STEPS_MAX))]
            for word, (step, numbers) in (*lines, *pool.kill()):
                target = maybe_acked if step == "ack" else tried if word == "try" else put
                target.update(numbers)
            trial.tried += 1
            _check_retained(trial.data, put, tried, maybe_acked)
    check_files(trial.data)


def _check_retained(path: Path, put: set[int], tried: set[int], maybe_acked: set[int]) -> None:
    with opened_to_look(path, later_s=7200) as opened:
        if "kept" not in opened.topics():
            expect(not put, "the topic is gone")
            return
        found = [number_in(record.value) for record in read_all(opened.queue("kept"))]
        expect(len(set(found)) == len(found), f"doubled: {found}")
        lost = put - maybe_acked - set(found)
        expect(not lost, f"unfinished, and gone: {sorted(lost)[:10]}")
        expect(set(found) <= tried, "something is there that nobody put")
        expect(opened.verify().is_sound, "a log is damaged")


def check_files(path: Path) -> None:
    """Nothing is left lying about: every index has its log, and nothing waits to be renamed."""
    files = {each.relative_to(path) for each in path.rglob("*") if each.is_file()}
    orphans = [each for each in files if each.suffix == ".idx" and each.with_suffix(".log") not in files]
    orphans += [each for each in files if each.suffix in (".tmp", ".new") or "@quarantine" in each.parts]
    expect(not orphans, f"orphan files: {orphans}")
