"""A cluster of real processes: etcd, a directory as the bucket, and brokers."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import quivermq
from support.command import INHERITED, QUIVER
from support.threads import PATIENCE_S

LEASE_S = 2
SHARDS = 4
_LOOK_S = 0.05


def wait_until(condition: Callable[[], object]) -> None:
    """Return once something is true that other processes make true, whose time is theirs meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        threading.Event().wait(_LOOK_S)


def free_port() -> int:
    """A port of this machine that nobody had just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running_etcd(directory: Path) -> Iterator[str]:
    """The URL of an etcd of one member, until the end of the block."""
    program = shutil.which("etcd")
    assert program, (
        "etcd is missing: `make test` as root installs it, or `sudo apt-get install etcd-server`"
    )
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        *(program, "--data-dir", str(directory), "--name", "one", "--unsafe-no-fsync"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"one={peer}", "--heartbeat-interval", "50", "--election-timeout", "500"),
    ]
    with (directory.parent / "etcd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(f"{client}/health") or process.poll() is not None)
        assert process.poll() is None, (directory.parent / "etcd.log").read_text()[-2000:]
        yield client
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(json.load(answer).get("health") == "true")
    except OSError:
        return False


class BrokerProcess:
    """A broker that was started, and the line that it printed once it served."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process = process
        self.log = log
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()[-4000:]
        self.told: dict[str, Any] = json.loads(line)
        self.url: str = self.told["url"]
        self.id: str = self.told["broker"]

    def ask(self, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
        """Status and JSON of an answer; no redirect is followed. 0 when there was none."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with _OPENER.open(request, timeout=20) as answer:
                return answer.status, _json_of(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _json_of(error.read())
        except OSError:
            return 0, None

    def view(self) -> dict[str, Any]:
        """The map of the cluster, as this broker has it."""
        status, view = self.ask("/v1/cluster")
        assert status == 200, view
        found: dict[str, Any] = view
        return found

    def serves(self, shard: int) -> bool:
        """Whether it answers for a shard."""
        return self.ask(f"/shards/{shard}/readyz")[0] == 200

    def shard(self, shard: int) -> quivermq.Connection:
        """The queue of a shard, asked here."""
        return quivermq.connect(f"{self.url}/shards/{shard}", retries=0)

    def send(self, number: signal.Signals) -> None:
        """Signal the process."""
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it, and return its exit code."""
        self.send(number)
        return self.process.wait(60)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


def _json_of(data: bytes) -> Any:
    return json.loads(data) if data else None


class ClusterProcesses:
    """The brokers of one cluster. Each test has a cluster of its own in the same etcd."""

    def __init__(self, etcd: str, name: str, path: Path, until: ExitStack) -> None:
        self.address = f"{etcd.replace('http://', 'etcd://')}/{name}"
        self.path = path
        self.bucket = f"file://{path}/bucket"
        self.environment = {
            **INHERITED,
            "QUIVER_CLUSTER__LEASE_S": str(LEASE_S),
            "QUIVER_STORAGE__DURABILITY": "fsync",
        }
        self._until = until
        self.brokers: list[BrokerProcess] = []

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of `quiver cluster`."""
        command = [str(QUIVER), "cluster", *arguments, "--etcd", self.address]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True)

    def make(self, shards: int = SHARDS) -> None:
        """Let there be the cluster."""
        done = self.run("init", "--bucket", self.bucket, "--shards", str(shards))
        assert done.returncode == 0, done.stderr

    def launch(self, *arguments: str, **environment: str) -> "tuple[subprocess.Popen[str], Path]":
        """Start a broker, which may fail."""
        number = len(self.brokers)
        log = self.path / f"broker-{number}.log"
        cache = self.path / f"cache-{number}"
        command = [
            *(str(QUIVER), "serve", "--cluster", self.address, "--port", "0", "--json"),
            *("--cache", str(cache), *arguments),
        ]
        with log.open("w") as errors:
            process = subprocess.Popen(
                command,
                env=self.environment | environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._until.callback(_end, process)
        return process, log

    def start(self, *arguments: str, **environment: str) -> BrokerProcess:
        """Start a broker, and return once it serves."""
        broker = BrokerProcess(*self.launch(*arguments, **environment))
        self.brokers.append(broker)
        return broker

    def settle(self, is_wanted: Callable[[dict[str, Any]], object] = lambda _: True) -> dict[str, Any]:
        """The map of the cluster, once every shard is answered for by its owner and all are as wanted."""
        found: list[dict[str, Any]] = []

        def is_settled() -> bool:
            alive = [each for each in self.brokers if each.process.poll() is None]
            view = alive[0].view()
            found.append(view)
            return bool(is_wanted(view)) and all(
                owner["broker"] is not None and self.by_id(owner["broker"]).serves(owner["shard"])
                for owner in view["owners"]
            )

        wait_until(is_settled)
        return found[-1]

    def by_id(self, name: str) -> "BrokerProcess":
        """The broker that is called so."""
        return next(each for each in reversed(self.brokers) if each.id == name)

    def owner(self, shard: int) -> BrokerProcess:
        """Who owns a shard, as somebody who lives has it."""
        return self.by_id(self.settle()["owners"][shard]["broker"])


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGCONT)
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
