"""Redis Streams with an append-only file, synced for each publish or once a second.

Redis answers after it has written the file, so `everysec` is our `os`, and `always` our `fsync`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

from benchmarks.broker.processes import HOST, connection, free_port, program, server_process
from benchmarks.broker.request import FIELDS, VALUE, Request
from benchmarks.broker.server import Consumer, Kind, Server
from benchmarks.shape import Shape
from quivermq.settings import Durability

_GROUP = "bench"
_CLIENTS_MAX = "15000"
_SYNC = {"fsync": "always", "os": "everysec", "buffered": "no"}
_END = b"\n"
# Of the answer to XADD: the length of the id, and the id.
_ADDED_LINES = 2
# Of the answer to XREADGROUP: those before the first message, of each message, and of each of its fields.
_HEAD_LINES, _MESSAGE_LINES, _FIELD_LINES = 5, 4, 4
_ID = re.compile(rb"\r\n(\d+-\d+)\r\n")
_RECEIVE_BYTES = 256 * 1024


class Redis(Server):
    """A server, and a connection for asking it."""

    name = "Redis Streams"

    def __init__(self, pid: int, port: int) -> None:
        super().__init__(pid, port)
        self._socket = connection(port)
        self._answers = self._socket.makefile("rb")

    def create(self, topic: str) -> None:
        """A stream comes to be with its first message."""

    def add_group(self, topic: str) -> None:
        self._call("XGROUP", "CREATE", topic, _GROUP, "0", "MKSTREAM")

    def drop(self, topic: str) -> None:
        self._call("DEL", topic)

    def stored(self, topic: str) -> int:
        return int(self._call("XLEN", topic))

    def settled(self, topic: str) -> int:
        """What the group has read, less what it has not acked."""
        (group,) = self._call("XINFO", "GROUPS", topic)
        fields = dict(zip(group[::2], group[1::2], strict=True))
        return int(fields[b"entries-read"] or 0) - int(fields[b"pending"])

    def publish(self, topic: str, shape: Shape = "plain") -> Request:
        return self.publish_many(topic, 1, shape)

    def publish_many(self, topic: str, count: int, shape: Shape = "plain") -> Request:
        """One by one without waiting: the next thousand is on its way while the last is answered."""
        pairs = [part for pair in _fields(shape).items() for part in pair]
        one = _command("XADD", topic, "*", *pairs)
        return Request(one * count, _END, _ADDED_LINES * count, count, depth=1 if count == 1 else 2)

    def consumer(self, topic: str, shape: Shape = "plain") -> Consumer:
        return _RedisConsumer(self.port, topic, shape)

    def wait(self, topic: str) -> Request:
        arguments = ("GROUP", _GROUP, "one", "COUNT", "1", "BLOCK", "0", "STREAMS", topic, ">")
        return Request(_command("XREADGROUP", *arguments), _END)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def _call(self, *arguments: str) -> Any:
        self._socket.sendall(_command(*arguments))
        return _answer(self._answers)


class _RedisConsumer(Consumer):
    """Reads batches and acks each as a whole."""

    def __init__(self, port: int, topic: str, shape: Shape) -> None:
        self._topic = topic
        self._lines = _MESSAGE_LINES + _FIELD_LINES * len(_fields(shape))
        self._socket = connection(port)

    def take(self, count: int, batch: int, until: float) -> int:
        send, topic, taken = self._socket.sendall, self._topic, 0
        read = _command("XREADGROUP", "GROUP", _GROUP, "one", "COUNT", str(batch), "STREAMS", topic, ">")
        while taken < count and perf_counter() < until:
            send(read)
            ids = _ID.findall(self._received(_HEAD_LINES + self._lines * batch))
            taken += len(ids)
            send(_command("XACK", topic, _GROUP, *ids))
            self._received(1)
        return taken

    def close(self) -> None:
        self._socket.close()

    def _received(self, lines: int) -> bytes:
        """Everything up to the end of so many lines."""
        parts: list[bytes] = []
        while lines > 0:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data or (not parts and data.startswith(b"-")):
                raise ConnectionError(f"Redis refused, or closed the connection: {data!r}")
            parts.append(data)
            lines -= data.count(b"\n")
        return b"".join(parts)


@contextmanager
def start_redis(place: Path, durability: Durability) -> Iterator[Redis]:
    port = free_port()
    place.mkdir(parents=True, exist_ok=True)
    options = {
        "bind": HOST,
        "port": str(port),
        "dir": str(place),
        "save": "",
        "appendonly": "yes",
        "appendfsync": _SYNC[durability],
        # A rewriting of the whole file in the middle of a round would be bad luck for Redis.
        "auto-aof-rewrite-percentage": "0",
        "maxclients": _CLIENTS_MAX,
    }
    command = [program("redis-server") or "redis-server"]
    for name, value in options.items():
        command += [f"--{name}", value]
    with server_process(command, port, place.with_suffix(".log")) as pid:
        redis = Redis(pid, port)
        try:
            yield redis
        finally:
            redis.close()


REDIS = Kind(Redis.name, "redis-server", "`apt install redis-server` has it", start_redis)


def _fields(shape: Shape) -> dict[str, bytes]:
    """A message is a set of fields: a plain one has only its value."""
    return {"v": VALUE, **FIELDS} if shape == "real" else {"v": VALUE}


def _command(*arguments: str | bytes) -> bytes:
    parts = [argument.encode() if isinstance(argument, str) else argument for argument in arguments]
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def _answer(answers: BinaryIO) -> Any:
    """The next answer: a number, bytes, None, or a list of answers."""
    line = answers.readline().removesuffix(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return answers.read(int(rest) + 2)[:-2] if rest != b"-1" else None
    if kind == b"*":
        return [_answer(answers) for _ in range(int(rest))]
    raise RuntimeError(f"Redis refused, or closed the connection: {line!r}")
