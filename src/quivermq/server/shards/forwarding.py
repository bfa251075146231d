"""Hands requests on to other brokers, and their answers back."""

from collections.abc import Mapping

from quivermq.client.asynchronous.pool import AsyncPool
from quivermq.client.core.address import Address, common_headers, default_ssl_context
from quivermq.client.core.call import Broken, Call
from quivermq.errors import Unavailable, Unreachable
from quivermq.server.http import Request, Response, error_response

_POOLS_MAX = 256
_TIMEOUT_S = 30.0
# Those of the broker itself, such as a message's: nothing of browsers and proxies goes with them.
_OWN = "quiver-"
_REQUEST_ID = "quiver-request-id"
# Of an answer's headers, also those that say something to the client; the others are between two machines.
_HEADERS = ("allow", "cache-control", "etag", "location", "retry-after", "www-authenticate")


class Forwarder:
    """Belongs to the event loop. `wait_s` is how long a call may be waited for, as a receive does."""

    def __init__(self, wait_s: float, timeout_s: float = _TIMEOUT_S) -> None:
        self._wait_s = wait_s
        self._timeout_s = timeout_s
        # By URL and key: requests of different clients go with different keys.
        self._pools: dict[tuple[str, str | None], AsyncPool] = {}

    async def forward(self, url: str, path: str, request: Request) -> Response:
        """What the broker at the URL answers to the request."""
        call = Call(
            request.method,
            path,
            request.query,
            request.body,
            request.headers.get("content-type", ""),
            accept=request.headers.get("accept"),
            wait_s=self._wait_s,
            # By the same id it is found in the logs of both.
            headers={**_own(request.headers), _REQUEST_ID: request.id},
        )
        outcome = await self._pool(url, _key_of(request)).exchange(call)
        if isinstance(outcome, Broken):
            # What was never sent may be sent to the next owner. Of all else nobody knows.
            kind = Unreachable if outcome.was_sent else Unavailable
            return error_response(kind(f"the broker of this shard does not answer: {outcome.reason}"))
        named = {name: outcome.headers[name] for name in _HEADERS if name in outcome.headers}
        headers = {name.title(): value for name, value in {**named, **_own(outcome.headers)}.items()}
        return Response(
            outcome.status, outcome.body, outcome.headers.get("content-type", ""), headers or None
        )

    def _pool(self, url: str, key: str | None) -> AsyncPool:
        pool = self._pools.pop((url, key), None)
        if pool is None:
            address = Address.parse(url)
            tls = default_ssl_context() if address.is_secure else None
            pool = AsyncPool(address, common_headers(address, key), self._timeout_s, tls)
        self._pools[url, key] = pool
        while len(self._pools) > _POOLS_MAX:
            # The one that was used least recently. Its calls go on, its connections end with them.
            del self._pools[next(iter(self._pools))]
        return pool

    async def close(self) -> None:
        """End all connections."""
        while self._pools:
            await self._pools.popitem()[1].close()


def _own(headers: Mapping[str, str]) -> dict[str, str]:
    return {n: value for n, value in headers.items() if n.startswith(_OWN) and n != _REQUEST_ID}


def _key_of(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key else None
