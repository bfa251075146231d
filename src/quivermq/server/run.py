"""Serving: listen, serve until told to stop, finish what has begun, close."""

import asyncio
import errno
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Protocol

import uvloop

from quivermq.clock import Clock
from quivermq.engine import Engine
from quivermq.errors import Conflict, InvalidRequest, QuiverError
from quivermq.server.access import ApiKey
from quivermq.server.app import App
from quivermq.server.broker import Broker
from quivermq.server.connection import ClientConnection
from quivermq.server.edge import Edge
from quivermq.server.gate import Gate, RateLimit
from quivermq.server.http import Request, Response
from quivermq.server.keys import KeyStore
from quivermq.server.memory import Memory
from quivermq.server.process import allow_open_files, return_large_blocks, short_pauses
from quivermq.server.routes import all_routes
from quivermq.server.routing import Answer
from quivermq.server.tls import Handshake, tls_context
from quivermq.settings import ServerSettings

logger = logging.getLogger(__name__)

# A terminal that is closed sends SIGHUP, which would end the process where it stands.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Connections that wait to be accepted.
_BACKLOG = 4096
# How long the event loop may take to let go of connections that were cut off.
_ABORT_S = 5.0


class Application(Protocol):
    """What answers requests, as a server sees it: see `App`."""

    @property
    def settings(self) -> ServerSettings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def memory(self) -> Memory: ...

    def start(self, count_connections: Callable[[], int]) -> None: ...
    def stop(self) -> None: ...
    def drain(self) -> None: ...
    def check_keys(self) -> bool: ...
    def is_welcome(self, key: ApiKey | None) -> bool: ...
    def answer(self, request: Request) -> Answer: ...
    def admit(self, request: Request) -> Response | None: ...


class Server:
    """An app at an address. Belongs to the event loop that it was started in."""

    def __init__(
        self, app: Application, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._app = app
        self._host = host
        self.port = port
        """The port; 0 stands for any that is free, until `start` has found one."""
        self._tls = tls
        self.edge = Edge(app.answer, app.settings, app.clock, app.admit, app.memory)
        self._listener: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.on_look: Callable[[], None] = lambda: None
        """Called whenever it looks around, once in a while."""

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises Conflict when the port is in use, InvalidRequest when it cannot be had."""
        loop = asyncio.get_running_loop()
        self._look_around(loop)
        try:
            self._listener = await loop.create_server(
                lambda: self._welcome(loop), self._host, self.port, backlog=_BACKLOG
            )
        except OSError as error:
            self._stop_looking()
            raise self._not_listening(error) from error
        self.port = self._listener.sockets[0].getsockname()[1]
        self._app.start(lambda: len(self.edge.clients))

    def _welcome(self, loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
        tls = self._tls
        return ClientConnection(self.edge, loop) if tls is None else Handshake(self.edge, loop, tls)

    async def drain(self) -> None:
        """Stop accepting, finish what has begun, and close every connection.

        Takes `server.drain_timeout_ms` at most: what is not finished then is cut off.
        """
        assert self._listener is not None, "it was not started"
        self._listener.close()
        self._app.drain()
        self.edge.drain()
        if not await self.edge.emptied(self.edge.settings.drain_timeout_ms / 1000):
            logger.warning("cut off %d connections that did not finish", len(self.edge.clients))
        await self.close()

    async def close(self) -> None:
        """Stop listening, and cut off every connection."""
        if self._listener is not None:
            self._listener.close()
        self._app.stop()
        self.edge.abort()
        await self.edge.emptied(_ABORT_S)
        self._stop_looking()

    def _look_around(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for the timeouts of all connections, for keys that are revoked, and for `on_look`."""
        self.edge.sweep()
        self.on_look()
        if self._app.check_keys():
            self.edge.send_away(self._app.is_welcome)
        self._sweep = loop.call_later(self.edge.sweep_interval_s, self._look_around, loop)

    def _stop_looking(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()

    def _not_listening(self, error: OSError) -> Conflict | InvalidRequest:
        if error.errno == errno.EADDRINUSE:
            return Conflict(
                f"port {self.port} of {self._host} is in use, perhaps by another broker:"
                " stop that one or choose another port"
            )
        return InvalidRequest(
            f"cannot listen on port {self.port} of {self._host}: {error.strerror or error}"
        )


def rate_limit(settings: ServerSettings, clock: Clock) -> RateLimit | None:
    """How often clients may ask, if that is limited."""
    per_second = settings.requests_per_second
    return None if per_second is None else RateLimit(per_second, clock.monotonic)


def broker_app(
    engine: Engine,
    settings: ServerSettings,
    keys: KeyStore | None = None,
    host: str = "",
    *,
    memory: Memory | None = None,
    rate: RateLimit | None = None,
) -> App:
    """The app that answers every call with what the engine does.

    Brokers of one process share their `memory`, and a `rate`.
    """
    rate = rate or rate_limit(settings, engine.clock)
    broker = Broker(engine, settings, memory=memory)
    if keys is not None:
        broker.is_welcome, broker.look_at_keys = keys.is_welcome, keys.look
    return App(broker, all_routes(), Gate(keys, rate, host, engine.catalog.table.origin_of))


def serve(
    engine: Engine,
    settings: ServerSettings,
    *,
    keys: KeyStore | None = None,
    ready: Callable[[Server], None] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP comes, drain, and close the engine. For the main thread.

    A second signal cuts the draining short. `keys` are those that the settings name unless given, and
    `ready` is called once clients may come. Raises InvalidRequest for an address that others reach while
    there are no keys, Conflict when the port is in use, and NotOwner, after draining as well, when another
    process has taken over the queue; the engine is closed then, too.
    """
    try:
        if keys is None:
            keys = KeyStore(engine.path, file=settings.keys, clock=engine.clock)
        check_reach(settings.host, is_authenticated=keys.is_required)
        if keys.is_required and keys.is_empty:
            logger.warning(
                "every call needs a key, and the last one was revoked: make one with `quiver key create`,"
                " or open the broker to this machine with `quiver key allow-anonymous`"
            )
        tls = tls_context(settings.tls_certificate, settings.tls_key)
        allow_open_files(settings.connections_max)
        return_large_blocks()
        app = broker_app(engine, settings, keys, settings.host)
        with short_pauses(), own_signals(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(app, Server(app, settings.host, settings.port, tls=tls), ready))
    finally:
        engine.close()


@contextmanager
def own_signals() -> Iterator[None]:
    """Leave the program its handlers: an event loop that is closed would go on to swallow Ctrl-C."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None stands for one that was not set by Python, and that nobody can set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


async def _serve(app: App, server: Server, ready: Callable[[Server], None] | None) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    try:
        await server.start()
        logger.info("serving %s at %s", app.broker.engine.name, server.url)
        # A disk that takes nothing now must not keep a broker from serving what is there.
        with suppress(QuiverError):
            app.broker.engine.announce(server.url)
        if ready is not None:
            await _call(ready, server)
        engine = app.broker.engine
        server.on_look = lambda: stopped.set() if engine.lost is not None else None
        await stopped.wait()
        lost = engine.lost
        if lost is None:
            logger.info("told to stop: finishing what has begun")
        else:
            logger.error("%s; this broker ends", lost, extra={"code": lost.code})
        # Only a signal hurries from now on.
        server.on_look = lambda: None
        stopped.clear()
        await _drain(server, stopped)
        if lost is not None:
            raise lost
    finally:
        # In here, while signals still have a handler: one that comes now must not keep the engine from
        # writing what it holds.
        await loop.run_in_executor(None, _close, app)


async def _call(ready: Callable[[Server], None], server: Server) -> None:
    try:
        ready(server)
    except BaseException:
        # Nobody was told where to come, and what looks around must not outlive the threads it asks.
        await server.close()
        raise


async def _drain(server: Server, stopped: asyncio.Event) -> None:
    """Drain, or cut that short when told a second time."""
    draining, hurry = asyncio.create_task(server.drain()), asyncio.create_task(stopped.wait())
    await asyncio.wait((draining, hurry), return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not draining.done():
        draining.cancel()
        await server.close()


def _close(app: App) -> None:
    app.broker.close()
    app.broker.engine.close()


# Which addresses the outside world can reach.


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches the host, by whatever address it has.

    Raises InvalidRequest for a name that has no address.
    """
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(f"{host!r} is no address to listen on: {error}") from error
    # An address may end in its network interface, as in fe80::1%eth0.
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def check_reach(host: str, *, is_authenticated: bool) -> None:
    """Raise InvalidRequest for an address that others reach, unless they need a key."""
    if is_authenticated or is_loopback(host):
        return
    raise InvalidRequest(
        f"{host or 'every address'} can be reached from other machines, and anybody could use the queue:"
        " make a key with `quiver key create`, or listen on 127.0.0.1"
    )
