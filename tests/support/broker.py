"""A broker in this process: a queue that is served on a port of its own, in a thread of its own."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from quivermq.clock import Clock
from quivermq.engine import engine_of
from quivermq.opening import open_directory
from quivermq.queue.connection import Connection
from quivermq.server.app import App
from quivermq.server.keys import KeyStore
from quivermq.server.run import Server, broker_app
from quivermq.settings import ServerSettings, Settings, StorageSettings
from support.threads import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Served:
    """A broker that runs."""

    engine: Connection
    server: Server
    app: App
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def port(self) -> int:
        return self.server.port

    def drain(self) -> None:
        """What SIGTERM does, but for closing the engine. Returns when it is done."""
        asyncio.run_coroutine_threadsafe(self.server.drain(), self.loop).result(PATIENCE_S)


@contextmanager
def serving(
    path: Path,
    *,
    settings: Settings | None = None,
    durability: Any = "os",
    clock: Clock | None = None,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    **server: Any,
) -> Iterator[Served]:
    """Serve the queue in a directory. `server` are settings of the section `server`.

    When this ends, the broker has drained, the engine is closed and the thread has ended.
    """
    settings = settings or Settings(
        storage=StorageSettings(durability=durability), server=ServerSettings(**server)
    )
    with (
        open_directory(path, settings, clock=clock) as engine,
        serving_engine(engine, port=port, tls=tls) as served,
    ):
        yield served


@contextmanager
def serving_engine(
    engine: Connection, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Served]:
    """Serve an engine that is open already, and that stays open."""
    started: _Started = Future()
    thread = threading.Thread(target=_run, args=(engine, port, tls, started), daemon=True)
    thread.start()
    served, stop = started.result(PATIENCE_S)
    try:
        yield served
    finally:
        served.loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the broker did not stop"


_Started = Future[tuple[Served, asyncio.Event]]


def _run(engine: Connection, port: int, tls: ssl.SSLContext | None, started: _Started) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(engine, port, tls, started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)


async def _serve(engine: Connection, port: int, tls: ssl.SSLContext | None, started: _Started) -> None:
    app = broker_app(
        engine_of(engine),
        engine_of(engine).settings.server,
        KeyStore(engine_of(engine).path, clock=engine_of(engine).clock),
    )
    server = Server(app, "127.0.0.1", port, tls=tls)
    try:
        await server.start()
        stop = asyncio.Event()
        started.set_result((Served(engine, server, app, asyncio.get_running_loop()), stop))
        await stop.wait()
        await server.drain()
    finally:
        app.broker.close()
