"""Processes that are born quickly, because thousands of them are killed.

A nursery has imported everything already; for each order on its standard input it forks a life, which costs
a hundredth of a new interpreter. Lines on its standard output, a word and JSON each:

    born <pid>              a life is about to begin
    failed <error>          it ended at what it did not expect
    dead <status>           it has ended
    …                       whatever the life tells

`python -m quivermq.chaos.nursery MODULE` is the process; the module has a function `live(order)`.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import IO, Any

from quivermq.chaos.expectation import Unkept, expect


class Nursery:
    """The end of whoever orders lives, one at a time, and kills them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders: IO[str] = process.stdin
        self._told: IO[str] = process.stdout
        self.pid = 0

    def begin(self, **order: Any) -> int:
        """Let a life begin, and return its process id."""
        self._orders.write(json.dumps(order) + "\n")
        self._orders.flush()
        word, [self.pid] = self.read()
        assert word == "born"
        return self.pid

    def read(self) -> tuple[str, list[Any]]:
        """The next line. What a life had written into the pipe outlives it. Raises Unkept if it failed."""
        line = self._told.readline()
        assert line, "the nursery is gone"
        word, _, rest = line.partition(" ")
        told = json.loads(rest)
        if word == "failed":
            raise Unkept(told[0])
        return word, told

    def reset(self) -> None:
        """End a life that was left behind, whatever it was doing, so that another one can begin."""
        if self.pid:
            # It may have ended by itself, and nobody has read that yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            # The nursery itself may be gone, and then nobody tells.
            while (line := self._told.readline()) and not line.startswith("dead "):
                continue
            self.pid = 0

    def kill(self) -> Iterator[tuple[str, list[Any]]]:
        """kill -9. Yields what it told before that and nobody has read yet; to be read to the end."""
        os.kill(self.pid, signal.SIGKILL)
        yield from self.last_words(signal.SIGKILL)

    def last_words(self, status: int) -> Iterator[tuple[str, list[Any]]]:
        """What it still tells until it ends, which it has to do with that status."""
        while (line := self.read())[0] != "dead":
            yield line
        self.pid = 0
        expect(line[1] == [status], f"it died of something else: {line[1]}")


@contextmanager
def nursery(module: str) -> Iterator[Nursery]:
    """A process that makes lives of `module`. Nothing of it is left behind.

    What lives log is not shown: what matters, they tell.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "quivermq.chaos.nursery", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # A Ctrl-C is for whoever runs this, who then ends the lives.
        start_new_session=True,
    ) as process:
        lives = Nursery(process)
        try:
            yield lives
        finally:
            lives.reset()
            process.kill()


def tell(word: str, *rest: Any) -> None:
    """Write a line, in a single call: a pipe takes it as a whole, however soon the writer dies."""
    os.write(1, f"{word} {json.dumps(rest)}\n".encode())


def _live(module: Any, order: dict[str, Any]) -> None:
    """A whole life. It never returns."""
    status = 1
    try:
        tell("born", os.getpid())
        module.live(order)
        status = 0
    except BaseException:
        tell("failed", traceback.format_exc())
    finally:
        os._exit(status)


def _nurse(module: Any) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _live(module, json.loads(line))
        _, status = os.waitpid(pid, 0)
        tell("dead", status)


if __name__ == "__main__":
    _nurse(import_module(sys.argv[1]))
