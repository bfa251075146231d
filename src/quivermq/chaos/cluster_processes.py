"""A whole cluster in processes of their own: etcd, perhaps a store, and brokers that come and go.

Brokers reach etcd, the store and each other over links that can be cut. A broker starts as quickly as any
process of a pool; this module has what such a process does.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from quivermq.chaos import expect, wait_until
from quivermq.chaos.cluster_servers import BUCKET, Etcd, StoreServer, etcd_server, free_ports, store_server
from quivermq.chaos.fault_proxy import FaultLink, FaultLinks, StoreLink, fault_links
from quivermq.chaos.http_clients import ask_once
from quivermq.chaos.processes import ProcessPool, process_pool, report
from quivermq.chaos.system_faults import JumpingClock
from quivermq.chaos.trial import NoScheduler, TickingClock
from quivermq.clock import SystemClock
from quivermq.cluster.address import ClusterAddress, connect_etcd
from quivermq.cluster.config import ClusterConfig, create_config, load_config
from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.node import ClusterNode
from quivermq.cluster.view import ClusterView, Owner
from quivermq.cluster.watching import look_at
from quivermq.errors import StoreUnreachable
from quivermq.opening import open_directory
from quivermq.queue.connection import Connection
from quivermq.server.keys import KeyStore
from quivermq.server.shards.run import serve_cluster
from quivermq.settings import EngineSettings, Settings
from quivermq.shared import open_shared
from quivermq.shared.beside import store_limits, store_options
from quivermq.shared.bucket import BucketStore
from quivermq.shared.etcd import EtcdClient
from quivermq.shared.etcd_chunks import EtcdChunks
from quivermq.shared.lease import KeptLease
from quivermq.topic.defaults import load_settings

BROKERS = "quivermq.chaos.cluster_processes"
SHARDS = 4
LEASE_S = 1
_KEYS = ClusterKeys("chaos")
_LOOKER_LEASE_S = 30
# Everything that happens now and then happens often.
_ENVIRONMENT = {
    "QUIVER_CLUSTER__LEASE_S": LEASE_S,
    "QUIVER_STORAGE__DURABILITY": "fsync",
    "QUIVER_BUCKET__REQUEST_TIMEOUT_MS": 1000,
    "QUIVER_BUCKET__COMMIT_TIMEOUT_MS": 2000,
    "QUIVER_BUCKET__CHECKPOINT_CHUNKS": 50,
    "QUIVER_BUCKET__GARBAGE_DELAY_MS": 0,
    "QUIVER_ENGINE__FREE_BYTES_MIN": 0,
    "QUIVER_SERVER__DRAIN_TIMEOUT_MS": 5000,
}


class ClusterBroker:
    """A broker of a cluster, which is killed, stopped and started again under the same name and port."""

    def __init__(self, pool: ProcessPool, name: str, port: int, order: dict[str, Any]) -> None:
        self._pool = pool
        self._order = order
        self.name = name
        self.port = port
        self.pid = 0

    def start(self) -> None:
        """Return once it serves."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it, and do not wait."""
        self.pid = self._pool.start(**self._order)

    def wait(self) -> None:
        """Return once it serves, after `begin`."""
        word, _ = self._pool.read()
        assert word == "serving"

    def kill(self) -> None:
        """kill -9."""
        self.pid = 0
        self._pool.kill()

    def stop(self) -> None:
        """Tell it to end, and wait until it has, in good order."""
        self.begin_to_stop()
        self.wait_for_end()

    def begin_to_stop(self) -> None:
        """Tell it to end, and do not wait."""
        os.kill(self.pid, signal.SIGTERM)

    def wait_for_end(self) -> None:
        """Return once it has ended in good order, after `begin_to_stop`."""
        self.pid = 0
        self._pool.wait(0)

    def pause(self) -> None:
        """Let it stand still."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    @property
    def is_ready(self) -> bool:
        """Whether it says that it is in the cluster, by its lease."""
        return bool(self.pid) and ask_once(self.port, "GET", "/readyz").is_done


class ChaosCluster:
    """Brokers, and what they lean on. `store` is None where a directory is the bucket."""

    def __init__(self, directory: Path, etcd: Etcd, store: StoreServer | None, rng: Random) -> None:
        self.directory = directory
        self.etcd = etcd
        self.store = store
        self.brokers: list[ClusterBroker] = []
        self.etcd_links: dict[str, list[FaultLink]] = {}
        self.store_links: dict[str, StoreLink] = {}
        self.broker_links: dict[str, FaultLink] = {}
        self._rng = rng
        self._looks = 0
        self.bucket = f"file://{directory}/bucket" if store is None else f"s3://{BUCKET}/chaos"
        self._client = self._new_client()
        create_config(self._client, _KEYS, ClusterConfig(self.bucket, SHARDS))

    def add(self, pool: ProcessPool, links: FaultLinks, clock: Path | None = None) -> None:
        """One more broker, which is not started yet."""
        name = f"broker-{len(self.brokers)}"
        [port] = free_ports(1)
        rng = Random(self._rng.random())
        self.etcd_links[name] = [links.link(member.port, rng) for member in self.etcd.members]
        self.broker_links[name] = links.link(port, rng)
        endpoints = ",".join(f"127.0.0.1:{link.port}" for link in self.etcd_links[name])
        environment = {
            **{key: str(value) for key, value in _ENVIRONMENT.items()},
            "QUIVER_CLUSTER__ETCD": f"etcd://{endpoints}/{_KEYS.cluster}",
            "QUIVER_CLUSTER__ID": name,
            "QUIVER_CLUSTER__ADVERTISE": f"http://127.0.0.1:{self.broker_links[name].port}",
            "QUIVER_SERVER__PORT": str(port),
            "QUIVER_BUCKET__CACHE": str(self.directory / name),
        }
        if self.store is not None:
            link = self.store_links[name] = links.store_link(self.store.port, rng)
            environment |= {**self.store.keys, "QUIVER_BUCKET__ENDPOINT": f"http://127.0.0.1:{link.port}"}
        order = {"environment": environment, "clock": None if clock is None else str(clock)}
        self.brokers.append(ClusterBroker(pool, name, port, order))

    @property
    def ports(self) -> list[int]:
        """Where clients find brokers, dead ones included."""
        return [broker.port for broker in self.brokers]

    def start(self) -> None:
        """Start all brokers, and return once every shard has an owner."""
        for broker in self.brokers:
            broker.begin()
        for broker in self.brokers:
            broker.wait()
        wait_until(lambda: len(self.owners()) == SHARDS, "some shards have no owner")

    def stop(self) -> None:
        """End all brokers that run at once, in good order."""
        running = [broker for broker in self.brokers if broker.pid]
        for broker in running:
            broker.begin_to_stop()
        for broker in running:
            broker.wait_for_end()

    def owners(self) -> dict[int, Owner]:
        """Who owns which shard, as etcd has it, once that answers."""
        found: list[ClusterView] = []

        def has_answered() -> bool:
            # Connections from before a restart are found to be gone one by one.
            with suppress(StoreUnreachable):
                found.append(look_at(self._client, _KEYS, SHARDS))
            return bool(found)

        wait_until(has_answered, "etcd does not answer")
        return dict(found[0].owners)

    def owner(self, shard: int) -> ClusterBroker:
        """The broker that owns a shard, once there is one."""
        wait_until(lambda: shard in self.owners(), f"nobody owns shard {shard}")
        name = self.owners()[shard].broker
        return next(each for each in self.brokers if each.name == name)

    def wait_for_takeover(self, before: dict[int, Owner], lost: ClusterBroker) -> int:
        """Return once others own what a broker owned before, and of how many shards that is so."""
        theirs = {shard for shard, owner in before.items() if owner.broker == lost.name}

        def is_over() -> bool:
            now = self.owners()
            return all(shard in now and now[shard].epoch > before[shard].epoch for shard in theirs)

        wait_until(is_over, f"nobody takes over from {lost.name}")
        return len(theirs)

    @contextmanager
    def opened(self, shard: int, later_s: int = 0) -> Iterator[Connection]:
        """A shard as it is in the bucket, so many seconds from now, once no broker owns it any more."""
        wait_until(lambda: shard not in self.owners(), f"shard {shard} is still owned by somebody")
        etcd = self._new_client()
        lease = KeptLease(etcd, _LOOKER_LEASE_S, SystemClock())
        try:
            chunks = EtcdChunks(
                self._shard_store(shard), etcd, _KEYS.shard(shard), owner="look", lease=lease
            )
            self._looks += 1
            disk = open_shared(chunks, self.directory / f"look-{self._looks}")
            clock = TickingClock(SystemClock().now_us() + later_s * 1_000_000)
            settings = Settings(engine=EngineSettings(free_bytes_min=0))
            try:
                with open_directory(
                    disk.root, settings, disk=disk, clock=clock, scheduler=NoScheduler()
                ) as mq:
                    yield mq
            finally:
                disk.close()
        finally:
            lease.end()
            etcd.close()

    def _shard_store(self, shard: int) -> BucketStore:
        if self.store is not None:
            return self.store.store(f"chaos/{shard}")
        return BucketStore(f"{self.bucket}/{shard}")

    def close(self) -> None:
        """Let go of etcd. The brokers are ended by their pools."""
        self._client.close()

    def _new_client(self) -> EtcdClient:
        return EtcdClient([member.url for member in self.etcd.members])


@contextmanager
def chaos_cluster(
    directory: Path,
    rng: Random,
    *,
    brokers: int = 3,
    members: int = 1,
    with_store: bool = False,
    clock_of: Callable[[int], Path | None] = lambda _: None,
) -> Iterator[ChaosCluster]:
    """A cluster that serves, until the end of the block. Nothing of it is left behind."""
    with ExitStack() as until:
        pools = [until.enter_context(process_pool(BROKERS)) for _ in range(brokers)]
        etcd = until.enter_context(etcd_server(directory / "etcd", members))
        store = until.enter_context(store_server(directory / "store")) if with_store else None
        links = until.enter_context(fault_links())
        cluster = until.enter_context(closing(ChaosCluster(directory, etcd, store, rng)))
        for number, pool in enumerate(pools):
            cluster.add(pool, links, clock_of(number))
        cluster.start()
        yield cluster


# What the processes of this module do.


def run_order(order: dict[str, Any]) -> None:
    """Be a broker, as `quiver serve --cluster` is. Its log goes into a file beside its cache."""
    os.environ.update(order["environment"])
    settings = load_settings(environ=order["environment"]).settings
    cache = settings.bucket.cache
    assert cache is not None, "it has a cache of its own"
    log = os.open(f"{cache}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    clock = order["clock"]
    etcd = connect_etcd(settings.cluster, "")
    keys = ClusterAddress.parse(settings.cluster.etcd).keys
    config = load_config(etcd, keys)
    node = ClusterNode(
        etcd,
        keys,
        config,
        store_of=lambda shard: BucketStore(
            f"{config.bucket}/{shard}",
            store_options(settings.bucket),
            timeout_s=settings.bucket.request_timeout_ms / 1000,
        ),
        cache=cache,
        settings=settings,
        clock=SystemClock() if clock is None else JumpingClock(Path(clock)),
        shared_limits=store_limits(settings.bucket),
    )
    expect(config.shards == SHARDS, "it is another cluster")
    serve_cluster(node, settings, keys=KeyStore(cache), ready=lambda *_: report("serving"))
