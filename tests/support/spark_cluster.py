"""A standalone cluster of Spark on this machine: a master and workers, each a process of its own."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from quivermq.spark.launcher import use_java
from support.spark_classes import quick_start

_SPARK_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_PATIENCE_S = 120


class Cluster:
    """What runs, by process."""

    def __init__(self, directory: Path, port: int) -> None:
        self.master = f"spark://127.0.0.1:{port}"
        self.workers: list[subprocess.Popen[str]] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []
        self._directory = directory
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(port), until="New state: ALIVE")

    def add_worker(self) -> None:
        directory = self._directory / f"worker{len(self.workers)}"
        arguments = ("--host", "127.0.0.1", "-c", "1", "-m", "1G", "-d", str(directory), self.master)
        self.workers.append(
            self._start("worker.Worker", *arguments, until="Successfully registered with master")
        )

    def executors(self) -> list[int]:
        """The process ids of the executors that the workers have started, and that still run."""
        # A worker starts nothing else.
        threads = [
            thread for worker in self.workers for thread in Path(f"/proc/{worker.pid}/task").iterdir()
        ]
        return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE_S)
        for listener in self._listeners:
            listener.join(_PATIENCE_S)

    def _start(self, kind: str, *arguments: str, until: str) -> "subprocess.Popen[str]":
        command = [str(_SPARK_HOME / "bin/spark-class"), f"{_DEPLOY}.{kind}", "--webui-port", "0"]
        process = subprocess.Popen(
            [*command, *arguments],
            env={
                **os.environ,
                "SPARK_HOME": str(_SPARK_HOME),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": str(self._directory),
                "SPARK_DAEMON_JAVA_OPTS": quick_start(),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        assert process.stderr is not None
        told = process.stderr
        if not any(until in line for line in told):
            raise AssertionError(f"{kind} ended with {process.wait(_PATIENCE_S)}")

        def listen() -> None:
            """It must never wait for somebody to read what it has to say."""
            with told:
                told.read()

        self._listeners.append(threading.Thread(target=listen, daemon=True))
        self._listeners[-1].start()
        return process


@contextmanager
def cluster(directory: Path, workers: int) -> Iterator[Cluster]:
    """A cluster whose workers have registered; everything has ended afterwards."""
    use_java()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = Cluster(directory, port)
    try:
        for _ in range(workers):
            running.add_worker()
        yield running
    finally:
        running.stop()
