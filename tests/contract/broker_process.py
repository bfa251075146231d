"""A broker in a process of its own, which a test may kill and start again on the same port."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import quivermq
from quivermq.errors import Unreachable


class BrokerProcess:
    """`quiver serve` on a directory. What it has acknowledged survives `kill`."""

    def __init__(self, path: Path, durability: str = "os") -> None:
        self._path = path
        self._environment = {**os.environ, "QUIVER_STORAGE__DURABILITY": durability}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        command = [str(Path(sys.executable).with_name("quiver")), "serve", "--data", str(self._path)]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port), "--log-level", "error"],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not self._answers():
            assert self._process.poll() is None, "the broker ended by itself"

    def _answers(self) -> bool:
        try:
            with quivermq.connect(self.url, retries=1) as mq:
                mq.topics()
        except Unreachable:
            return False
        return True

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """What a system does that wants it to end."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()
