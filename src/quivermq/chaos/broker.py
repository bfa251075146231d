"""A broker in a process of its own, which is killed, stopped and started again over one directory."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quivermq.chaos.http import Caller
from quivermq.chaos.nursery import Nursery
from quivermq.client import Connection, connect

LIVES = "quivermq.chaos.lives"


class BrokerProcess:
    """Real: it listens on a port, holds the directory, and can be hurt in every way a process can."""

    def __init__(
        self,
        lives: Nursery,
        path: Path,
        *,
        clock: Path | None = None,
        disk_bytes: int | None = None,
        **settings: object,
    ) -> None:
        self._lives = lives
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

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "BrokerProcess":
        """Return once it serves. On the port it had before, so that clients find it again."""
        self.pid = self._lives.begin(**self._order, port=self.port)
        word, [self.port] = self._lives.read()
        assert word == "serving"
        return self

    def kill(self) -> None:
        """kill -9."""
        list(self._lives.kill())
        self.pid = 0

    def stop(self) -> None:
        """Tell it to end, and wait until it has, in good order."""
        os.kill(self.pid, signal.SIGTERM)
        list(self._lives.last_words(0))
        self.pid = 0

    def restart(self) -> None:
        """End it without a warning, and start it again."""
        self.kill()
        self.start()

    def caller(self) -> Caller:
        """A client of the standard library."""
        return Caller(self.port)

    def connect(self, **options: Any) -> Connection:
        """A client of the project's own, which never asks twice."""
        return connect(self.url, **{"retries": 0, **options})


@contextmanager
def broker(lives: Nursery, path: Path, **options: Any) -> Iterator[BrokerProcess]:
    """A broker that serves a directory; killed at the end, unless it was stopped.

    Options are those of BrokerProcess, and settings as variables of the environment without their QUIVER_:
    storage__durability="os".
    """
    process = BrokerProcess(lives, path, **options)
    process.start()
    try:
        yield process
    finally:
        if process.pid:
            process.kill()
