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
        self._clients: list[Caller | Connection] = []

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
        self._forget()

    def stop(self) -> None:
        """Tell it to end, and wait until it has, in good order."""
        os.kill(self.pid, signal.SIGTERM)
        list(self._lives.last_words(0))
        self._forget()

    def _forget(self) -> None:
        """It is gone, and nobody has anything to say to it any more."""
        self.pid = 0
        for client in self._clients:
            client.close()
        self._clients.clear()

    def restart(self) -> None:
        """End it without a warning, and start it again."""
        self.kill()
        self.start()

    def caller(self) -> Caller:
        """A client of the standard library, for as long as this broker lives."""
        caller = Caller(self.port)
        self._clients.append(caller)
        return caller

    def connect(self, **options: Any) -> Connection:
        """A client of the project's own, which never asks twice, for as long as this broker lives."""
        connection = connect(self.url, **{"retries": 0, **options})
        self._clients.append(connection)
        return connection


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
