"""A process that imports until it has come to a certain step, where it waits to be killed.

`python -m support.doomed_import KIND SOURCE PLACE STEP COUNT WHEN`; PLACE is a directory or a URL. Before
or after, as WHEN says, the COUNT-th call of STEP it says `now` and does nothing any more.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import quivermq
from quivermq.importers import import_queue, importing, stream
from quivermq.importers.target import ImportTarget, target_of

TESTS = Path(__file__).parents[1]


class Doomed:
    """A target that stops at a step."""

    def __init__(self, target: ImportTarget, step: str, count: int, when: str) -> None:
        self._target = target
        self._step = step
        self._left = count
        self._when = when

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._target, name)
        return self._doomed(call) if name == self._step else call

    def _doomed(self, call: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if not self._left and self._when == "before":
                _die()
            result = call(*arguments, **options)
            if not self._left:
                _die()
            return result

        return step


def _die() -> None:
    print("now", flush=True)
    while True:
        signal.pause()


def killed_at(kind: str, source: Path, place: str, step: str, count: int, when: str) -> None:
    """Import in a process of its own, and kill that with -9 at a step."""
    arguments = [kind, str(source), place, step, str(count), when]
    command = [sys.executable, "-m", "support.doomed_import", *arguments]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def main(kind: str, source: str, place: str, step: str, count: str, when: str) -> None:
    # So small that there are many steps to die at.
    stream._CHUNK_MESSAGES = 100
    vars(importing)["target_of"] = lambda queue: Doomed(target_of(queue), step, int(count), when)
    with quivermq.connect(place) if place.startswith("http") else quivermq.open(place) as queue:
        import_queue(kind, source, queue, topic="jobs")


if __name__ == "__main__":
    main(*sys.argv[1:])
