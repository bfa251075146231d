"""The ways to a queue, for asyncio. All give an `AsyncConnection`."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from quivermq.aio.connection import AsyncConnection
from quivermq.aio.threads import ThreadedBackend
from quivermq.client.asynchronous.backend import AsyncHttpBackend
from quivermq.client.asynchronous.pool import AsyncPool
from quivermq.client.core.address import Address, common_headers, default_ssl_context, is_list
from quivermq.client.core.patience import client_settings, patience_of
from quivermq.clock import Clock
from quivermq.engine import open_at
from quivermq.model.checks import Period
from quivermq.settings import ClientSettings, Settings

if TYPE_CHECKING:
    from ssl import SSLContext


async def open_directory(
    path: str | os.PathLike[str],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    clock: Clock | None = None,
) -> AsyncConnection:
    """As `quivermq.open`, with methods that are awaited: each runs in a thread. `clock` is for tests."""
    engine = await asyncio.to_thread(partial(open_at, path, settings, cache=cache, clock=clock))
    return AsyncConnection(ThreadedBackend(engine))


async def connect(
    url: str,
    *,
    key: str | None = None,
    timeout: Period | None = None,
    ssl_context: "SSLContext | None" = None,
    retries: int | None = None,
    backoff: Period | None = None,
    backoff_max: Period | None = None,
    settings: ClientSettings | None = None,
) -> AsyncConnection:
    """As `quivermq.connect`, with methods that are awaited. It belongs to the event loop that runs."""
    settings = client_settings(settings)
    if is_list(url):
        # Only then is it loaded.
        from quivermq.cluster.connecting import connect_cluster

        given = (key, timeout, ssl_context, retries, backoff, backoff_max, settings)
        return AsyncConnection(ThreadedBackend(connect_cluster(url, *given)), settings)
    address = Address.parse(url)
    timeout_s, retry = patience_of(settings, timeout, retries, backoff, backoff_max)
    if address.is_secure and ssl_context is None:
        ssl_context = default_ssl_context()
    pool = AsyncPool(address, common_headers(address, key), timeout_s, ssl_context)
    return AsyncConnection(AsyncHttpBackend(str(address), pool, retry), settings)
