"""The lives that a nursery makes: a worker of its own directory, and a broker."""

import os
from pathlib import Path
from typing import Any

from quivermq.chaos.jumping_clock import JumpingClock
from quivermq.chaos.nursery import tell
from quivermq.chaos.small_disk import move_to_small_disk
from quivermq.chaos.tracing import allow_tracing
from quivermq.chaos.worker import Errand, Worker, prepare
from quivermq.engine import open_engine
from quivermq.server.run import serve
from quivermq.settings import load_settings


def live(order: dict[str, Any]) -> None:
    """Do what the order says, until somebody ends it."""
    match order.pop("kind"):
        case "worker":
            _work(**order)
        case "broker":
            _serve(**order)


def _work(path: str, settings: dict[str, Any], errand: dict[str, Any]) -> None:
    engine = open_engine(path)
    prepare(engine, settings)
    Worker(engine, Errand(**errand), tell).run()


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
    engine = open_engine(path, settings, clock=None if clock is None else JumpingClock(Path(clock)))
    serve(engine, settings.server, port=port, ready=lambda server: tell("serving", server.port))
