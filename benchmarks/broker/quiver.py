"""Our broker, as `quiver serve` starts it, and its HTTP alone, which answers the same without storing."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import quivermq
from benchmarks.broker.processes import HOST, free_port, program, server_process
from benchmarks.broker.request import ANSWER, HEADERS, KEY, VALUE, Request
from benchmarks.broker.server import Consumer, Kind, Server
from benchmarks.messages import content, frame_bytes, random_messages
from benchmarks.shape import TIME_US, Shape
from quivermq.settings import Durability

GROUP = "bench"
# There is one in every answer to a publish, and it is the last byte.
_END = b"}"
_WAIT_MS = 60_000
# What a real message has besides its value, in the address and the head of a raw publish.
QUERY = f"?key={KEY.decode()}&timestamp={TIME_US}"
HEADER_LINES = {f"Quiver-Header-{name}": value.decode() for name, value in HEADERS.items()}
HEAD = "".join(f"{name}: {value}\r\n" for name, value in HEADER_LINES.items())


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

    def publish(self, topic: str, shape: Shape = "plain") -> Request:
        query, head = ("", "") if shape == "plain" else (QUERY, HEAD)
        return Request(_post(topic, "application/octet-stream", VALUE, query, head), _END)

    def publish_json(self, topic: str, shape: Shape = "plain") -> Request:
        """The same message as JSON."""
        message: dict[str, object] = {"value": VALUE.decode()}
        if shape == "real":
            headers = {name: value.decode() for name, value in HEADERS.items()}
            message |= {"key": KEY.decode(), "headers": headers, "timestamp": TIME_US}
        return Request(_post(topic, "application/json", json.dumps(message).encode()), _END)

    def publish_many(self, topic: str, count: int, shape: Shape = "plain") -> Request:
        """A frame, which is encoded once."""
        frame = frame_bytes(random_messages(count, shape))
        return Request(_post(topic, "application/vnd.quiver.frame", frame), _END, messages=count)

    def consumer(self, topic: str, shape: Shape = "plain") -> Consumer:
        return QuiverConsumer(self.url, topic, shape)

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

    def __init__(self, url: str, topic: str, shape: Shape = "plain") -> None:
        self.connection = quivermq.connect(url)
        self.queue = self.connection.queue(topic, GROUP)
        # Somebody looks at every message: that is what they are got for.
        self.look: Callable[[Any], object] = content if shape == "real" else attrgetter("value")

    def take(self, count: int, batch: int, until: float) -> int:
        queue, look, taken = self.queue, self.look, 0
        while taken < count and perf_counter() < until:
            messages = queue.get_many(batch)
            taken += sum(1 for message in messages if look(message))
            queue.ack(messages)
        return taken

    def close(self) -> None:
        self.connection.close()


class StreamConsumer(QuiverConsumer):
    """The library's, as a loop over `stream`."""

    def take(self, count: int, batch: int, until: float) -> int:
        look, taken = self.look, 0
        # Nothing is left when it ends by itself. What it is left with goes back, and does not count.
        for message in self.queue.stream(timeout=0, prefetch=batch):
            if perf_counter() >= until:
                break
            taken += 1 if look(message) else 0
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


def _post(topic: str, content_type: str, body: bytes, query: str = "", head: str = "") -> bytes:
    return _request(f"/v1/topics/{topic}/messages{query}", content_type, body, head)


def _request(path: str, content_type: str, body: bytes, more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {content_type}\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
