"""The lives that a nursery makes: a broker, and all kinds of clients and users of a directory."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from quivermq.chaos.jumping_clock import JumpingClock
from quivermq.chaos.numbered import number_in, value_of
from quivermq.chaos.nursery import tell
from quivermq.chaos.small_disk import move_to_small_disk
from quivermq.chaos.tracing import allow_tracing
from quivermq.chaos.worker import Errand, Worker, prepare
from quivermq.client import Connection, connect
from quivermq.engine import Engine, open_engine
from quivermq.errors import LeaseExpired
from quivermq.server.run import serve
from quivermq.topic.defaults import load_settings

# Longer than a short lease, and than a retry takes to be due.
_PATIENCE_S = 1.5


def live(order: dict[str, Any]) -> None:
    """Do what the order says, until somebody ends it."""
    lives: dict[str, Callable[..., None]] = {
        "worker": _work,
        "broker": _serve,
        "keeper": _keep,
        "consumer": _consume,
        "poisoned": _take_poison,
    }
    lives[order.pop("kind")](**order)


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
    serve(engine, replace(settings.server, port=port), ready=lambda server: tell("serving", server.port))


def _keep(path: str, number: int) -> None:
    """Put, take and remove what is finished, all the time."""
    engine = open_engine(path)
    if "kept" not in engine.topics():
        engine.create_topic("kept", segment_messages=4, delete_finished=True, durability="os")
    queue = engine.queue("kept")
    for first in count(number, 3):
        numbers = list(range(first, first + 3))
        tell("try", "put", numbers)
        queue.put_many([value_of(each) for each in numbers])
        tell("did", "put", numbers)
        taken = queue.get_many(2, lease=3600)
        tell("try", "ack", [number_in(delivery.value) for delivery in taken])
        queue.ack(taken)
        engine.compact()


def _consume(place: str, topic: str, lease_s: float) -> None:
    """Take a message, and finish it only when told to go on."""
    # Before there are threads, so that the signal waits until somebody asks for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    with opened(place) as mq:
        queue = mq.queue(topic)
        try:
            # The lease is renewed as long as this process runs.
            with queue.process(timeout=30, lease=lease_s) as message:
                assert message is not None, "there is no message"
                tell("took", message.receipt, message.attempt)
                signal.sigwait({signal.SIGUSR1})
                if not place.startswith("http"):
                    again = queue.get(timeout=30)
                    tell("again", None if again is None else again.attempt)
            tell("acked")
        except LeaseExpired:
            tell("refused")


def _take_poison(place: str, topic: str, lease_s: float, crashes: bool) -> None:
    """Take a message that nobody survives: the process dies, or what handles it raises."""
    with opened(place) as mq:
        try:
            with mq.queue(topic).process(timeout=_PATIENCE_S, lease=lease_s) as message:
                if message is None:
                    tell("nothing")
                    return
                tell("took", message.attempt)
                if crashes:
                    os._exit(1)
                raise ValueError("it tastes of almonds")
        except ValueError:
            tell("spat")


@contextmanager
def opened(place: str) -> Iterator[Engine | Connection]:
    """A directory, or a broker by its address."""
    mq = connect(place, retries=0) if place.startswith("http") else open_engine(place)
    with mq:
        yield mq
