"""A cluster over HTTP without its control plane: a broker for each shard, and who owns it as a test says.

A test may let an owner die in the middle of a call: the shard goes on at the next one.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from quivermq.client.blocking.pool import Pool
from quivermq.client.core.address import Address, common_headers
from quivermq.client.core.call import Answer, Broken, Call
from quivermq.client.core.patience import patience_of
from quivermq.cluster.backend import ClusterBackend
from quivermq.cluster.connecting import HttpShards, Link
from quivermq.cluster.placement import spread_over
from quivermq.queue.connection import Connection
from quivermq.settings import ClientSettings, Settings
from support.broker import serving

SHARDS = 3
BROKERS = ("http://a:7070", "http://b:7070")

# What is told of each call, and may take its place: nothing, or what becomes of it.
Interfere = Callable[[str, int, Call], Answer | Broken | None]


class RoutedShards:
    """Who owns which shard, and which topics are wide."""

    def __init__(self, urls: list[str], topics: dict[str, tuple[int, ...]]) -> None:
        self.urls = urls
        self.topics = topics
        self.revision = 1
        self.owners: dict[int, str | None] = {n: BROKERS[n % len(BROKERS)] for n in range(len(urls))}
        self.dead: set[str] = set()
        self.interfere: Interfere = lambda *_: None
        self.calls: list[tuple[str, str]] = []

    def move(self, shard: int, url: str | None) -> None:
        """Let another broker own a shard, or nobody."""
        self.owners[shard] = url
        self.revision += 1

    def kill(self, url: str) -> None:
        """Let a broker answer no more, and own nothing."""
        self.dead.add(url)
        for shard, owner in list(self.owners.items()):
            if owner == url:
                self.move(shard, None)

    def document(self) -> dict[str, Any]:
        """What `GET /v1/cluster` answers."""
        return {
            "cluster": "test",
            "shards": len(self.urls),
            "revision": self.revision,
            "owners": [{"shard": n, "url": url} for n, url in self.owners.items()],
            "topics": {name: {"shards": list(place)} for name, place in self.topics.items()},
        }

    def connect(self, *, is_wide: bool = False, **settings: Any) -> Connection:
        """A connection of its own."""
        seeds = [Address.parse(url) for url in BROKERS]
        chosen = ClientSettings(**settings)
        timeout_s, retry = patience_of(chosen, None, None, None, None)
        link = RoutedLink(self, seeds, timeout_s)
        backend = ClusterBackend(HttpShards(link, retry, chosen.failover_ms / 1000))
        if is_wide:
            from support.local_shards import WideConnection

            return WideConnection(backend, chosen)
        return Connection(backend, chosen)


class RoutedLink(Link):
    """Connections to brokers that are not there, but for their shards."""

    def __init__(self, cluster: RoutedShards, seeds: list[Address], timeout_s: float) -> None:
        self._cluster = cluster
        super().__init__(seeds, None, timeout_s, None)

    def pool(self, url: str, *, is_prompt: bool = False) -> Pool:
        with self._lock:
            pool = self._pools.get((url, is_prompt))
            if pool is None:
                pool = self._pools[url, is_prompt] = RoutedPool(self._cluster, url, self.timeout_s)
        return pool


class RoutedPool(Pool):
    """Connections to one broker, which are some to each shard it serves."""

    def __init__(self, cluster: RoutedShards, url: str, timeout_s: float) -> None:
        address = Address.parse(url)
        super().__init__(address, common_headers(address, None), timeout_s, None)
        self._cluster = cluster
        self._url = url
        shards = map(Address.parse, cluster.urls)
        self._shards = [Pool(each, common_headers(each, None), timeout_s, None) for each in shards]

    def exchange(self, call: Call) -> Answer | Broken:
        self.check_open()
        cluster = self._cluster
        if self._url in cluster.dead:
            return Broken("connection refused", was_sent=False)
        cluster.calls.append((self._url, call.path))
        if not call.path.startswith("/shards/"):
            return self._answer(call)
        number, _, rest = call.path.removeprefix("/shards/").partition("/")
        shard, there = int(number), replace(call, path=f"/{rest}")
        owner = cluster.owners[shard]
        if owner is None:
            return _error(503, "unavailable")
        if owner != self._url:
            return _error(307, "not_owner")
        found = cluster.interfere(self._url, shard, there)
        return self._shards[shard].exchange(there) if found is None else found

    def pass_on(self, shard: int, call: Call) -> Answer | Broken:
        """What the shard itself says."""
        return self._shards[shard].exchange(call)

    def _answer(self, call: Call) -> Answer:
        cluster = self._cluster
        if call.path.startswith("/v1/cluster/topics"):
            if call.method == "POST":
                given = json.loads(call.body)
                place = tuple(spread_over(given["name"], given["spread"], len(cluster.urls)))
                there = cluster.topics.setdefault(given["name"], place)
                cluster.revision += 1
                if len(there) != given["spread"]:
                    return _error(409, "topic_exists")
                return Answer(200, {}, json.dumps({"shards": there}).encode())
            del cluster.topics[call.path.rpartition("/")[2]]
            cluster.revision += 1
            return Answer(204, {}, b"")
        assert call.path == "/v1/cluster", call.path
        return Answer(200, {}, json.dumps(cluster.document()).encode())

    def interrupt(self) -> None:
        super().interrupt()
        for pool in self._shards:
            pool.interrupt()

    def resume(self) -> None:
        super().resume()
        for pool in self._shards:
            pool.resume()

    def close(self) -> None:
        super().close()
        for pool in self._shards:
            pool.close()


def _error(status: int, code: str) -> Answer:
    error = {"code": code, "message": f"it says {code}", "retryable": True}
    return Answer(status, {}, json.dumps({"error": error}).encode())


@contextmanager
def serving_shards(
    path: Path, settings: Settings | None = None, topics: dict[str, tuple[int, ...]] | None = None
) -> Iterator[RoutedShards]:
    """Serve directories below a path as shards."""
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(serving(path / str(shard), settings=settings)) for shard in range(SHARDS)
        ]
        yield RoutedShards([broker.url for broker in brokers], {} if topics is None else topics)
