"""A key that is revoked while its client waits: for events, for messages, for a partition."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from support.broker import Served, serving
from support.threads import PATIENCE_S

from quivermq.engine import engine_of
from quivermq.group.assignment import TopicPartition
from quivermq.server.access import SCOPES, KeyScope
from quivermq.server.keys import NewKey, create_key, revoke_key
from quivermq.server.tls import tls_context


class Place(NamedTuple):
    """A directory with keys, its broker, and what connects to it."""

    data: Path
    keys: dict[KeyScope, NewKey]
    served: Served
    connect: Callable[[], socket.socket]


@pytest.fixture(params=["plain", "tls"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA, certificate: tuple[Path, Path]
) -> Iterator[Place]:
    data = tmp_path / "data"
    keys = {scope: create_key(data, scope) for scope in SCOPES}
    trust = ssl.create_default_context()
    authority.configure_trust(trust)

    def connect() -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
        return plain if request.param == "plain" else trust.wrap_socket(plain, server_hostname="localhost")

    tls = tls_context(*certificate) if request.param == "tls" else None
    with serving(data, tls=tls) as served:
        served.engine.create_topic("orders", partitions=2, durability="os")
        yield Place(data, keys, served, connect)


def send(to: socket.socket, key: NewKey | None, call: str, body: Any = None) -> None:
    text = b"" if body is None else json.dumps(body).encode()
    authorization = "" if key is None else f"Authorization: Bearer {key.text}\r\n"
    head = f"{call} HTTP/1.1\r\nHost: localhost\r\n{authorization}Content-Length: {len(text)}\r\n\r\n"
    to.sendall(head.encode() + text)


def until_the_end(client: socket.socket) -> bytes:
    received = b""
    while part := client.recv(65536):
        received += part
    return received


def test_a_stream_of_events_ends(place: Place) -> None:
    data, keys, _, connect = place
    key, other = keys["read"], keys["admin"]
    with connect() as client, connect() as stays:
        for to, sent in ((client, key), (stays, other)):
            send(to, sent, "GET /v1/events")
            assert to.recv(15) == b"HTTP/1.1 200 OK"
        revoke_key(data, key.key.id)
        until_the_end(client)
        # Whoever has another key goes on hearing, also what happened since then.
        heard = b""
        while b"event: stats" not in heard:
            heard += stays.recv(65536)


def test_who_came_without_a_key_goes_once_there_is_one(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        client = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
        with client:
            send(client, None, "GET /v1/events")
            assert client.recv(15) == b"HTTP/1.1 200 OK"
            create_key(tmp_path, "read")
            until_the_end(client)


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("POST /v1/topics/orders/groups/g/receive", {"wait_ms": 60_000}),
        ("POST /v1/topics/*/groups/g/receive", {"wait_ms": 60_000}),
        ("GET /v1/topics/orders/partitions/0/messages?wait_ms=60000", None),
    ],
)
def test_a_long_poll_ends_and_takes_nothing(place: Place, call: str, body: Any) -> None:
    data, keys, served, connect = place
    key = keys["consume"]
    with connect() as client:
        send(client, key, call, body)
        revoke_key(data, key.key.id)
        answer = client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 401 "), answer
    orders = served.engine.queue("orders", "g")
    orders.put(b"tea")
    delivery = orders.get()
    assert delivery is not None
    assert delivery.attempt == 1


def test_a_member_that_waits_for_a_partition_is_sent_away(place: Place) -> None:
    data, keys, served, connect = place
    key = keys["consume"]
    members = engine_of(served.engine).members
    first = members.join("g", ["orders"], strategy="range", client="")
    members.sync("g", first.member_id, first.generation, frozenset())
    both = frozenset(TopicPartition("orders", number) for number in (0, 1))
    with connect() as client:
        send(client, key, "POST /v1/groups/g/join", {"topics": ["orders"], "strategy": "range"})
        joined = json.loads(client.recv(65536).rpartition(b"\r\n\r\n")[2])
        # The first one keeps what the second one is owed.
        members.sync("g", first.member_id, joined["generation"], both)
        body = {"member_id": joined["member_id"], "generation": joined["generation"], "wait_ms": 60_000}
        send(client, key, "POST /v1/groups/g/sync", body)
        revoke_key(data, key.key.id)
        answer = client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 401 "), answer


def test_a_large_body_that_began_with_a_good_key_is_not_taken(place: Place) -> None:
    data, keys, served, connect = place
    key = keys["write"]
    with connect() as client:
        head = "POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
        client.sendall(f"{head}Authorization: Bearer {key.text}\r\n\r\n".encode() + b"x" * 50_000)
        with connect() as other:
            # Another client is answered, so the first one was read as far as it came.
            send(other, key, "GET /v1/key")
            assert other.recv(65536).startswith(b"HTTP/1.1 200 ")
            revoke_key(data, key.key.id)
            while True:
                send(other, key, "GET /v1/key")
                if other.recv(65536).startswith(b"HTTP/1.1 401 "):
                    break
        client.sendall(b"x" * 50_000)
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")
    assert served.engine.queue("orders").stats().pending == 0
