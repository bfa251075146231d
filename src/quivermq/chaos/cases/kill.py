"""kill -9 at random moments, again and again in one directory, under a load that uses everything."""

import threading
from contextlib import ExitStack
from dataclasses import asdict
from random import Random
from typing import Any

from quivermq.chaos.broker import broker
from quivermq.chaos.bystanders import Bystanders
from quivermq.chaos.expectation import expect
from quivermq.chaos.http import PATIENCE_S
from quivermq.chaos.nursery import Nursery
from quivermq.chaos.promises import Promises
from quivermq.chaos.trial import Trial, opened_to_look
from quivermq.chaos.worker import Errand, Worker, prepare
from quivermq.errors import Closing, Unreachable

_STEPS_MAX = 60
# Not right behind a step, but somewhere between two.
_MOMENT_S_MAX = 0.003
_CYCLES_BETWEEN_LOOKS = 10
_A_DAY_S = 24 * 3600


def engine(trial: Trial, durability: str, ordering: str = "none") -> None:
    """A process that has the directory open itself, and dies with it."""
    promises, errand = Promises(), Errand(0)
    settings = {"durability": durability, "ordering": ordering}
    with trial.nursery() as lives:
        for life in range(trial.cycles):
            errand.life = life
            lives.begin(kind="worker", path=str(trial.data), settings=settings, errand=asdict(errand))
            let_work(lives, promises, trial.rng)
            errand = promises.stopped()
            trial.tried += 1
            _look_now_and_then(trial, promises, life)
    look_at_the_end(trial, promises)


def let_work(lives: Nursery, promises: Promises, rng: Random) -> None:
    """Kill a worker after some lines and a moment more, and note everything it told."""
    for _ in range(rng.choice((0, rng.randint(1, _STEPS_MAX)))):
        word, rest = lives.read()
        promises.note(word, *rest)
    _pause(rng.uniform(0, _MOMENT_S_MAX))
    for word, rest in lives.kill():
        promises.note(word, *rest)


def over_http(trial: Trial, durability: str, ordering: str = "none") -> None:
    """A broker that dies under its clients: one that uses everything, and a crowd of simple ones."""
    over_http_with(trial, {"durability": durability, "ordering": ordering})


def over_http_with(trial: Trial, settings: dict[str, Any], *, tidies: bool = False) -> None:
    """The same, with other settings of the topic, or another load."""
    promises, errand = Promises(), Errand(0)
    bystanders = Bystanders(trial.seed)
    durability = settings["durability"]
    with trial.nursery() as lives, broker(lives, trial.data, storage__durability=durability) as process:
        for life in range(trial.cycles):
            errand.life, errand.tidies = life, tidies
            with bystanders.at_work(process):
                load = _Load(process.connect(), errand, settings, promises)
                load.wait_for(trial.rng.choice((0, trial.rng.randint(1, _STEPS_MAX))))
                _pause(trial.rng.uniform(0, _MOMENT_S_MAX))
                process.kill()
                load.end()
            errand = promises.stopped()
            trial.tried += 1
            _look_now_and_then(trial, promises, life)
            process.start()
        process.kill()
    look_at_the_end(trial, promises)
    bystanders.check(trial.data)


class _Load:
    """A worker in a thread, which works until its broker is gone."""

    def __init__(
        self, connection: Any, errand: Errand, settings: dict[str, Any], promises: Promises
    ) -> None:
        self._connection = connection
        self._promises = promises
        self._lines = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(errand, settings), daemon=True)
        self._thread.start()

    def wait_for(self, lines: int) -> None:
        """Return once it has told so much, or has ended."""
        for _ in range(lines):
            while not self._lines.acquire(timeout=0.1):
                if not self._thread.is_alive():
                    return

    def end(self) -> None:
        """The broker is gone. Raises what the worker raised that was not because of that."""
        self._thread.join(PATIENCE_S)
        expect(not self._thread.is_alive(), "a client waits for a broker that is gone")
        self._connection.close()
        if self._error is not None:
            raise self._error

    def _run(self, errand: Errand, settings: dict[str, Any]) -> None:
        try:
            prepare(self._connection, settings)
            Worker(self._connection, errand, self._tell).run()
        except (Unreachable, Closing):
            # Of the last step nobody knows anything.
            return
        except BaseException as error:
            self._error = error

    def _tell(self, word: str, *rest: Any) -> None:
        self._promises.note(word, *rest)
        self._lines.release()


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _look_now_and_then(trial: Trial, promises: Promises, life: int) -> None:
    if life % _CYCLES_BETWEEN_LOOKS == _CYCLES_BETWEEN_LOOKS - 1:
        with opened_to_look(trial.data) as opened:
            promises.check(opened)
            expect(opened.verify().is_sound, "a log is damaged")


def look_at_the_end(trial: Trial, promises: Promises) -> None:
    """When no lease holds any more, everything has to come out once, and nothing else."""
    with ExitStack() as stack:
        opened = stack.enter_context(opened_to_look(trial.data, later_s=_A_DAY_S))
        opened.maintain()
        promises.check(opened)
        promises.drain(opened)
        promises.check(opened)
        promises.check_finished()
        report = opened.verify()
        expect(report.is_sound, f"a log is damaged: {report.findings}")
