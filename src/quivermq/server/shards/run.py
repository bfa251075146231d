"""Serving shards of a cluster: join it, serve what is claimed until told to stop, give it away, leave."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from urllib.parse import urlsplit

import uvloop

from quivermq.clock import SteadyClock, SystemClock
from quivermq.cluster.node import ClusterNode
from quivermq.cluster.shard import OwnedShard
from quivermq.cluster.view import BrokerInfo
from quivermq.errors import InvalidRequest
from quivermq.server.keys import KeyStore
from quivermq.server.process import allow_open_files, return_large_blocks, short_pauses
from quivermq.server.run import Server, check_reach, is_loopback, own_signals, rate_limit
from quivermq.server.shards.app import ClusterApp
from quivermq.server.tls import tls_context
from quivermq.settings import Settings

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Who works on a shard that was lost finds that out soon.
_LOST_S = 1.0
_ANYWHERE = ("", "0.0.0.0", "::")


def serve_cluster(
    node: ClusterNode,
    settings: Settings,
    *,
    keys: KeyStore,
    ready: Callable[[Server, ClusterNode], None] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP comes, give the shards to others, and leave the cluster.

    A second signal lets go of them at once. For the main thread; the node is closed in any case. Raises
    InvalidRequest for an address that others reach while there are no keys, or that they cannot reach;
    BrokerExists, Conflict when the port is in use, and what etcd raises.
    """
    try:
        server = settings.server
        check_keys(server.host, has_file=server.keys is not None)
        check_reach(server.host, is_authenticated=keys.is_required)
        if server.host in _ANYWHERE and not settings.cluster.advertise:
            raise InvalidRequest(
                f"others cannot come to {server.host or 'every address'}: say --advertise with the URL"
                " by which clients and the other brokers reach this one"
            )
        tls = tls_context(server.tls_certificate, server.tls_key)
        allow_open_files(server.connections_max)
        return_large_blocks()
        clock = SteadyClock(SystemClock())
        app = ClusterApp(
            node,
            server,
            keys,
            clock=clock,
            rate=rate_limit(server, clock),
            may_forward=settings.cluster.forward,
        )
        with short_pauses(), own_signals(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(app, Server(app, server.host, server.port, tls=tls), settings, ready))
    finally:
        node.close()


def check_keys(host: str, *, has_file: bool) -> None:
    """Raise InvalidRequest where brokers of several machines would each have keys of their own."""
    if not has_file and not is_loopback(host):
        raise InvalidRequest(
            "all brokers of a cluster need the same keys: make them with `QUIVER_SERVER__KEYS=FILE quiver"
            " key create`, and say --keys with a copy of that file on every machine"
        )


async def _serve(
    app: ClusterApp,
    server: Server,
    settings: Settings,
    ready: Callable[[Server, ClusterNode], None] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    node = app.node
    try:
        await server.start()
        info = _info(server.url, settings)
        bridge = _Bridge(app, loop, settings.server.drain_timeout_ms / 1000)
        start = asyncio.ensure_future(app.run(node.start, info, on_open=bridge.add, on_close=bridge.remove))
        await start
        logger.info("broker %s is in the cluster %s at %s", info.id, app.keys.cluster, info.url)
        if ready is not None:
            ready(server, node)
        await stopped.wait()
        stopped.clear()
        logger.info("told to stop: giving the shards to others")
        await _leave(app, stopped)
        with suppress(TimeoutError):
            await asyncio.wait_for(server.drain(), settings.server.drain_timeout_ms / 1000)
    finally:
        # In here, while there is a loop: shards that are closed are taken from the app.
        await app.run(node.close)
        await app.forwarder.close()
        await server.close()


async def _leave(app: ClusterApp, stopped: asyncio.Event) -> None:
    hurry = threading.Event()
    leaving = asyncio.ensure_future(app.run(app.node.leave, hurry))
    told_again = asyncio.ensure_future(stopped.wait())
    await asyncio.wait((leaving, told_again), return_when=asyncio.FIRST_COMPLETED)
    hurry.set()
    told_again.cancel()
    await leaving


def _info(url: str, settings: Settings) -> BrokerInfo:
    cluster = settings.cluster
    url = (cluster.advertise or url).rstrip("/")
    return BrokerInfo(cluster.id or urlsplit(url).netloc, url, version("quivermq"), cluster.capacity)


class _Bridge:
    """From the threads that open and close shards to the event loop."""

    def __init__(self, app: ClusterApp, loop: asyncio.AbstractEventLoop, drain_s: float) -> None:
        self._app = app
        self._loop = loop
        self._drain_s = drain_s

    def add(self, shard: OwnedShard) -> None:
        asyncio.run_coroutine_threadsafe(self._app.add(shard), self._loop).result()

    def remove(self, shard: OwnedShard) -> None:
        timeout_s = self._drain_s if shard.is_fresh else _LOST_S
        asyncio.run_coroutine_threadsafe(self._app.remove(shard, timeout_s), self._loop).result()
