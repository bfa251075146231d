"""Our broker, as `quiver serve` starts it, and its HTTP alone, which answers the same without storing."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter
from typing import Any

import quivermq
from benchmarks.broker.bare_server import ANSWER
from benchmarks.broker.processes import HOST, free_port, program, server_process
from benchmarks.broker.request import VALUE, Request
from benchmarks.broker.server import Consumer, Kind, Server
from benchmarks.workload import frame_bytes, random_messages
from quivermq.settings import Durability

GROUP = "bench"
# There is one in every answer to a publish, and it is the last byte.
_END = b"}"
_WAIT_MS = 60_000


class Quiver(Server):
    """The broker. A topic has the durability that the broker was started for."""

    name = "Quiver"

    def __init__(self, pid: int, port: int, durability: Durability) -> None:
        super().__init__(pid, port)
        self._durability = durability

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def create(self, topic: str) -> None:
        self._call("POST", "/v1/topics", {"name": topic, "durability": self._durability})

    def add_group(self, topic: str) -> None:
        self._call("POST", f"/v1/topics/{topic}/groups/{GROUP}/seek", {"to": "earliest"})

    def drop(self, topic: str) -> None:
        self._call("DELETE", f"/v1/topics/{topic}")

    def stored(self, topic: str) -> int:
        messages: int = self._call("GET", f"/v1/topics/{topic}")["messages"]
        return messages

    def settled(self, topic: str) -> int:
        group = self._call("GET", f"/v1/topics/{topic}/groups/{GROUP}")
        left: int = group["backlog"]
        return self.stored(topic) - left

    def publish(self, topic: str) -> Request:
        return Request(_post(topic, "application/octet-stream", VALUE), _END)

    def publish_json(self, topic: str) -> Request:
        """The same message as JSON."""
        return Request(
            _post(topic, "application/json", json.dumps({"value": VALUE.decode()}).encode()), _END
        )

    def publish_many(self, topic: str, count: int) -> Request:
        """A frame, which is encoded once."""
        frame = frame_bytes(random_messages(count))
        return Request(_post(topic, "application/vnd.quiver.frame", frame), _END, messages=count)

    def consumer(self, topic: str) -> Consumer:
        return QuiverConsumer(self.url, topic)

    def wait(self, topic: str) -> Request:
        body = json.dumps({"max": 1, "wait_ms": _WAIT_MS}).encode()
        path = f"/v1/topics/{topic}/groups/{GROUP}/receive"
        return Request(_request(path, "application/json", body), _END)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        connection = HTTPConnection(HOST, self.port, timeout=60)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} was answered with {answer.status}: {content!r}")
        return json.loads(content) if content else None


class Bare(Quiver):
    """Our HTTP alone. It has no topics, and answers every publish with the same bytes."""

    name = "our HTTP without a queue"

    def create(self, topic: str) -> None:
        pass

    def drop(self, topic: str) -> None:
        pass

    def check(self, topic: str, acknowledged: int, last: bytes) -> None:  # noqa: ARG002 - It has none.
        if not last.endswith(ANSWER):
            raise RuntimeError(f"{acknowledged} requests came to our HTTP, and it last said {last!r}")


class QuiverConsumer(Consumer):
    """The library's: `get_many` and `ack` of all of them."""

    def __init__(self, url: str, topic: str) -> None:
        self.connection = quivermq.connect(url)
        self.queue = self.connection.queue(topic, GROUP)

    def take(self, count: int, batch: int, until: float) -> int:
        queue, taken = self.queue, 0
        while taken < count and perf_counter() < until:
            messages = queue.get_many(batch)
            # Somebody looks at every message: that is what they are got for.
            taken += sum(1 for message in messages if message.value)
            queue.ack(messages)
        return taken

    def close(self) -> None:
        self.connection.close()


class StreamConsumer(QuiverConsumer):
    """The library's, as a loop over `stream`."""

    def take(self, count: int, batch: int, until: float) -> int:
        taken = 0
        # Nothing is left when it ends by itself. What it is left with goes back, and does not count.
        for message in self.queue.stream(timeout=0, prefetch=batch):
            if perf_counter() >= until:
                break
            taken += 1 if message.value else 0
        assert taken <= count, "the topic had as many as are to be taken"
        return taken


@contextmanager
def start_quiver(place: Path, durability: Durability) -> Iterator[Quiver]:
    port = free_port()
    command = [program("quiver") or "quiver", "serve", "--data", str(place), "--port", str(port)]
    with server_process(command, port, place.with_suffix(".log")) as pid:
        yield Quiver(pid, port, durability)


@contextmanager
def start_bare(place: Path, durability: Durability) -> Iterator[Bare]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.broker.bare_server", str(place), str(port)]
    with server_process(command, port, place.with_suffix(".log")) as pid:
        yield Bare(pid, port, durability)


QUIVER = Kind(Quiver.name, "quiver", "it comes with the package", start_quiver)
BARE = Kind(Bare.name, "quiver", "it comes with the package", start_bare)


def _post(topic: str, content_type: str, body: bytes) -> bytes:
    return _request(f"/v1/topics/{topic}/messages", content_type, body)


def _request(path: str, content_type: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
