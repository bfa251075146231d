"""A process that appends single messages and batches until it is killed, and tells what it was promised.

`python -m support.doomed_writer DIRECTORY RUN SETTINGS`. Its lines on standard output:

    open <offset>                   the log is open and ends there
    done <offset> <number> <count>  these messages are acknowledged, the first one at that offset

At `buffered` only a flush is a promise, so only then is told what came before it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import IO, Any

from quivermq.chaos.processes import report
from quivermq.log import DataDirectory, Log
from quivermq.settings import StorageSettings

TESTS = Path(__file__).parents[1]


def value_of(run: int, number: int) -> bytes:
    """The value of a message: whoever knows it can tell which it is, and whether it is whole."""
    name = b"%d:%d:" % (run, number)
    return name + Random(name).randbytes(number % 7 * 20)


def number_in(value: bytes) -> tuple[int, int]:
    """Run and number of the message that has this value."""
    run, number, _ = value.split(b":", 2)
    assert value == value_of(int(run), int(number))
    return int(run), int(number)


@contextmanager
def doomed_writer(path: Path, run: int, **settings: Any) -> Iterator[tuple[int, IO[str]]]:
    """The process's id and what it tells. Killed at the end, if it has not been before."""
    with subprocess.Popen(
        [sys.executable, "-m", "support.doomed_writer", str(path), str(run), json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout
        finally:
            process.kill()
    assert process.returncode == -9, "it died of something else"


def _tell(*words: object) -> None:
    # One system call for the whole line, which a pipe takes as a whole.
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def _write(log: Log, run: int, tell: Callable[..., None]) -> None:
    rng, number, untold = Random(run), 0, []
    is_buffered = log.settings.durability == "buffered"
    tell("open", log.end)
    while True:
        count = rng.choice((1, 1, 1, rng.randint(2, 40)))
        values = [value_of(run, number + each) for each in range(count)]
        offset = log.append(values[0]) if count == 1 else log.append_many(values)
        untold.append((offset, number, count))
        number += count
        if is_buffered:
            if rng.random() < 0.8:
                continue
            log.flush()
        for promise in untold:
            tell("done", *promise)
        untold.clear()
        if log.settings.segments_max is not None and rng.random() < 0.1:
            log.retain()


def run_order(order: dict[str, Any]) -> None:
    """The same as a process of a pool, which reports with words and JSON."""

    def report_done(word: str, *rest: object) -> None:
        if word == "done":
            report(word, *rest)

    with DataDirectory(order["path"], StorageSettings(**order["settings"])) as directory:
        _write(directory.log("log"), order["run"], report_done)


if __name__ == "__main__":
    given = StorageSettings(**json.loads(sys.argv[3]))
    with DataDirectory(sys.argv[1], given) as directory:
        _write(directory.log("log"), int(sys.argv[2]), _tell)
