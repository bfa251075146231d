"""The shards of a cluster over HTTP: who owns them is asked of any broker."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quivermq.backend import Backend
from quivermq.client.blocking.backend import HttpBackend, HttpQueue
from quivermq.client.blocking.pool import Pool
from quivermq.client.blocking.shell import Shell
from quivermq.client.consuming.consumer import RemoteConsumer
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.core.address import Address, common_headers, default_ssl_context
from quivermq.client.core.call import Answer, Broken, Call
from quivermq.client.core.failure import failure_of
from quivermq.client.core.patience import PATIENT, client_settings, patience_of
from quivermq.client.core.retry import Retry
from quivermq.client.core.sequenced import SequencedPublishing
from quivermq.client.core.wire import decoded, encoded, path_of
from quivermq.client.producing.options import ProducerOptions
from quivermq.client.producing.producer import RemoteProducer
from quivermq.clock import SystemClock
from quivermq.cluster.backend import ClusterBackend
from quivermq.cluster.exchanging import ShardExchange, TopicExchange
from quivermq.cluster.map import ClusterMap
from quivermq.errors import InvalidRequest, QuiverError, TopicNotFound, Unreachable
from quivermq.log.flusher import Flusher
from quivermq.model.checks import Period
from quivermq.settings import ClientSettings

if TYPE_CHECKING:
    from ssl import SSLContext

logger = logging.getLogger(__name__)

# What others decided is noticed after so long, where nothing fails for it.
_REMEMBERED_S = 10.0
# A broker that says nothing for so long is passed over, where others can be asked.
_PROMPT_S = 5.0
_LONG_S = 300.0
_NOT_FOUND = 404


def connect_cluster(
    urls: str,
    key: str | None = None,
    timeout: Period | None = None,
    ssl_context: "SSLContext | None" = None,
    retries: int | None = None,
    backoff: Period | None = None,
    backoff_max: Period | None = None,
    settings: ClientSettings | None = None,
) -> ClusterBackend:
    """A cluster, by the addresses of some of its brokers. Takes what `quivermq.connect` takes."""
    addresses = [Address.parse(url.strip()) for url in urls.split(",") if url.strip()]
    if not addresses:
        raise InvalidRequest("a cluster is named by the URLs of its brokers, separated by commas")
    settings = client_settings(settings)
    timeout_s, retry = patience_of(settings, timeout, retries, backoff, backoff_max)
    link = Link(addresses, key, timeout_s, ssl_context)
    return ClusterBackend(HttpShards(link, retry, settings.failover_ms / 1000))


class Link:
    """What all objects of one connection share: the map, and connections to each broker. Thread-safe."""

    def __init__(
        self, seeds: Sequence[Address], key: str | None, timeout_s: float, ssl_context: "SSLContext | None"
    ) -> None:
        self.clock = SystemClock()
        self.seeds = [str(seed) for seed in seeds]
        self.timeout_s = timeout_s
        self.map: ClusterMap | None = None
        self.fetched_at = 0.0
        self.fetching = threading.Lock()
        self.flusher = Flusher(self.clock)
        self._key = key
        self._ssl_context = ssl_context
        self._lock = threading.Lock()
        self._pools: dict[tuple[str, bool], Pool] = {}
        self._is_interrupted = False
        self._is_closed = False
        # Those that every call can name, and the checks of the key, before anything is sent.
        self.check = self.pool(self.seeds[0])

    def pool(self, url: str, *, is_prompt: bool = False) -> Pool:
        """The connections to one broker."""
        with self._lock:
            pool = self._pools.get((url, is_prompt))
            if pool is None:
                address = Address.parse(url)
                timeout_s = min(self.timeout_s, _PROMPT_S) if is_prompt else self.timeout_s
                if address.is_secure and self._ssl_context is None:
                    self._ssl_context = default_ssl_context()
                pool = Pool(address, common_headers(address, self._key), timeout_s, self._ssl_context)
                if self._is_closed:
                    pool.close()
                if self._is_interrupted:
                    pool.interrupt()
                self._pools[url, is_prompt] = pool
        return pool

    def interrupt(self) -> None:
        self._is_interrupted = True
        for pool in list(self._pools.values()):
            pool.interrupt()

    def resume(self) -> None:
        self._is_interrupted = False
        for pool in list(self._pools.values()):
            pool.resume()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            pools = list(self._pools.values())
        for pool in pools:
            pool.close()
        self.flusher.close()


class PromptBackend(HttpBackend):
    """A shard whose calls do not wait for its next owner. What it delivers is settled by calls that do."""

    settle_at: Backend

    def queue(self, topic: str, group: str) -> HttpQueue:
        return HttpQueue(self, topic, group, self.settle_at.queue(topic, group).settle)


class HttpShards:
    """The shards of a cluster that brokers serve. Thread-safe."""

    def __init__(self, link: Link, retry: Retry, patience_s: float) -> None:
        self._link = link
        self._retry = retry
        self._patience_s = patience_s
        self._lock = threading.RLock()
        self._backends: dict[tuple[int, bool], HttpBackend] = {}
        self.name = ",".join(link.seeds)
        self.clock = link.clock
        self.scheduler = link.flusher

    # The map.

    def map(self) -> ClusterMap:
        known = self._link.map
        if known is not None and self.clock.monotonic() - self._link.fetched_at < _REMEMBERED_S:
            return known
        try:
            return self.refresh()
        except Unreachable:
            if known is None:
                raise
            # Its shards may be there all the same.
            self._link.fetched_at = self.clock.monotonic()
            return known

    def refresh(self) -> ClusterMap:
        return self.refresh_after(self.clock.monotonic())

    def refresh_after(self, time_s: float) -> ClusterMap:
        """The map as it was after that time. Raises Unreachable when no broker tells it."""
        link = self._link
        with link.fetching:
            if link.map is None or link.fetched_at <= time_s:
                found = self._fetched()
                # A broker that was away may not know the latest yet.
                if link.map is None or found.revision >= link.map.revision:
                    link.map = found
                link.fetched_at = self.clock.monotonic()
            return link.map

    def _fetched(self) -> ClusterMap:
        self.check_open()
        error: QuiverError | None = None
        owners = () if self._link.map is None else dict.fromkeys(self._link.map.urls.values())
        for url in [*owners, *(seed for seed in self._link.seeds if seed not in owners)]:
            outcome = self._link.pool(url, is_prompt=True).exchange(
                Call("GET", "/v1/cluster", is_repeatable=True)
            )
            if isinstance(outcome, Answer) and outcome.status == 200:
                return ClusterMap.from_json(decoded(outcome.body))
            if isinstance(outcome, Answer) and outcome.status == _NOT_FOUND:
                raise InvalidRequest(
                    f"{url} is a broker alone: connect to it by its own URL, without a comma"
                )
            error = failure_of(outcome)
            if isinstance(outcome, Answer) and not error.retryable:
                raise error
        raise Unreachable(f"no broker of the cluster answers: {error}")

    def url_of(self, shard: int) -> str | None:
        """Where a shard is served, as far as is known."""
        known = self._link.map
        if known is None:
            try:
                known = self.refresh()
            except Unreachable:
                return None
        return known.urls.get(shard)

    def pool(self, url: str, *, is_prompt: bool) -> Pool:
        """The connections to a broker."""
        return self._link.pool(url, is_prompt=is_prompt)

    # Shards.

    def backend(self, shard: int) -> Backend:
        return self._backend(shard, is_prompt=False)

    def prompt(self, shard: int) -> Backend:
        return self._backend(shard, is_prompt=True)

    def _backend(self, shard: int, *, is_prompt: bool) -> HttpBackend:
        with self._lock:
            found = self._backends.get((shard, is_prompt))
            if found is None:
                patience_s = 0.0 if is_prompt else self._patience_s
                exchange = ShardExchange(self, shard, patience_s, is_prompt=is_prompt)
                retry = replace(self._retry, retries=0) if is_prompt else self._retry
                name = f"{self.name} shard {shard}"
                kind = PromptBackend if is_prompt else HttpBackend
                found = kind(name, Shell(exchange), retry, SequencedPublishing)
                if isinstance(found, PromptBackend):
                    found.settle_at = self.backend(shard)
                self._backends[shard, is_prompt] = found
        return found

    def patient(self) -> "HttpShards":
        return HttpShards(self._link, PATIENT, _LONG_S)

    def producer(self, topic: str, place: Sequence[int], options: ProducerOptions) -> RemoteProducer:
        exchanges = [ShardExchange(self, shard, self._patience_s, is_prompt=False) for shard in place]
        return RemoteProducer(topic, Shell(TopicExchange(exchanges)), options)

    def consumer(self, place: Sequence[int], options: ConsumerOptions) -> RemoteConsumer:
        # A shard that nobody serves must not keep it from what the others have: it asks again by itself.
        each = [self._backend(shard, is_prompt=True) for shard in place]
        return RemoteConsumer([(backend.shell, backend.calls) for backend in each], options)

    # Wide topics.

    def widen(self, topic: str, spread: int) -> Sequence[int]:
        document = {"name": topic, "spread": spread}
        answer = self._ask(Call("POST", "/v1/cluster/topics", {}, encoded(document), is_repeatable=True))
        self.refresh()
        shards = tuple(map(int, decoded(answer.body)["shards"]))
        self._note(topic, shards)
        return shards

    def narrow(self, topic: str) -> None:
        try:
            self._ask(Call("DELETE", path_of("cluster", "topics", topic), is_repeatable=True))
        except TopicNotFound:
            # Somebody else was faster, or the answer was lost.
            logger.info("%s was not wide any more", topic)
        self.refresh()
        self._note(topic, None)

    def _note(self, topic: str, shards: tuple[int, ...] | None) -> None:
        """The broker that was asked for the map may hear of it a little later."""
        with self._link.fetching:
            known = self._link.map
            if known is not None:
                others = {name: place for name, place in known.topics.items() if name != topic}
                topics = others if shards is None else others | {topic: shards}
                self._link.map = replace(known, topics=topics)

    def _ask(self, call: Call) -> Answer:
        """What any broker answers. Raises what it says, and Unreachable when none answers."""
        outcome: Answer | Broken = Broken("there is none", was_sent=False)
        for url in dict.fromkeys([*self.map().urls.values(), *self._link.seeds]):
            outcome = self._link.pool(url).exchange(call)
            if isinstance(outcome, Answer) and outcome.status < 400:
                return outcome
            if isinstance(outcome, Answer) and not failure_of(outcome).retryable:
                break
        raise failure_of(outcome)

    # The end.

    def check_open(self) -> None:
        self._link.check.check_open()

    def interrupt(self) -> None:
        self._link.interrupt()

    def resume(self) -> None:
        self._link.resume()

    def close(self) -> None:
        with self._lock:
            backends: list[Any] = list(self._backends.values())
        try:
            for backend in backends:
                backend.close()
        finally:
            self._link.close()
