"""A log in a process of its own, which does what a test asks for, one call at a time.

`python -m support.remote DIRECTORY SETTINGS` is the other end.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from quivermq.log import DataDirectory
from quivermq.settings import StorageSettings

TESTS = Path(__file__).parents[1]


class RemoteLog:
    """The log `log` of a data directory, open for writing in another process.

    Calls are those of `quivermq.log.Log`; text stands for bytes.
    """

    def __init__(self, path: Path, **settings: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.remote", str(path), json.dumps(settings)],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method there, and return what it returns once it has."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments, options]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def append(self, *values: str) -> list[int]:
        return [self.call("append", value) for value in values]

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._close_pipes()

    def close(self) -> None:
        """Close the log and let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait() == 0
        self._close_pipes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the other process is gone"
        return json.loads(line)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def serve(path: str, settings: str) -> None:
    with DataDirectory(path, StorageSettings(**json.loads(settings))) as directory:
        log = directory.log("log")
        print("true", flush=True)
        for line in sys.stdin:
            name, arguments, options = json.loads(line)
            result = getattr(log, name)(*map(_decoded, arguments), **options)
            print(json.dumps(result), flush=True)


def _decoded(argument: Any) -> Any:
    if isinstance(argument, str):
        return argument.encode()
    return [_decoded(each) for each in argument] if isinstance(argument, list) else argument


if __name__ == "__main__":
    serve(*sys.argv[1:])
