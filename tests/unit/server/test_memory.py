"""One budget for what all clients together make the broker hold, in small."""

import os
import socket
import ssl
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.broker import Served, serving
from support.manual_clock import ManualClock
from support.threads import PATIENCE_S, wait_until
from support.transport import Wire

from quivermq.errors import InvalidSettings
from quivermq.server.http import Later, Response
from quivermq.server.keys import create_key
from quivermq.server.memory import HANDSHAKE_BYTES, STALLED_S, Memory
from quivermq.server.tls import tls_context
from quivermq.settings import ServerSettings

MIB = 1024 * 1024
BUDGET = 8 * MIB


class Holding:
    """Somebody who holds bytes."""

    has_given_up = False

    def give_up(self) -> None:
        self.has_given_up = True


def test_who_stands_still_for_longest_makes_room() -> None:
    memory, first, second, third = Memory(100), Holding(), Holding(), Holding()
    memory.hold(first, 60, 0)
    memory.hold(second, 40, 0.1)
    memory.hold(first, 60, 0.2)
    assert memory.make_room(0.3)
    assert not memory.make_room(0.3, 1)
    assert memory.make_room(0.1 + STALLED_S, 1)
    assert (first.has_given_up, second.has_given_up, memory.held_bytes) == (False, True, 60)
    memory.hold(third, 100, 0.3)
    assert memory.make_room(0.3, at_any_cost=True)
    assert (first.has_given_up, third.has_given_up, memory.held_bytes) == (True, False, 100)
    memory.hold(third, 0, 0.4)
    assert memory.held_bytes == 0


def test_a_body_that_could_never_come_in_is_a_wrong_setting() -> None:
    with pytest.raises(InvalidSettings, match="body_bytes_max"):
        ServerSettings(memory_bytes_max=MIB)


def test_an_answer_larger_than_the_budget_is_for_one_client_at_a_time() -> None:
    memory, first, second = Memory(100), Holding(), Holding()
    memory.hold(first, 500, 0)
    assert not memory.make_room(0, at_any_cost=True)
    memory.hold(second, 300, 0)
    assert not memory.make_room(0, at_any_cost=True)
    assert (first.has_given_up, second.has_given_up, memory.held_bytes) == (True, False, 300)
    # Not so for whoever stands still.
    assert memory.make_room(STALLED_S)
    assert memory.held_bytes == 0


def test_an_answer_counts_as_a_whole_until_its_last_byte_is_on_its_way() -> None:
    wire = Wire(lambda _: Response(200, bytes(4 * MIB)), room=100_000)
    wire.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    memory = wire.edge.memory
    while wire.transport.sent.count(b"\0") < 4 * MIB:
        assert memory.held_bytes >= 4 * MIB
        wire.transport.take(wire.transport.unsent_bytes)
    wire.edge.sweep()
    assert 0 < memory.held_bytes < 2 * MIB
    wire.transport.take(wire.transport.unsent_bytes)
    wire.edge.sweep()
    assert memory.held_bytes == 0


def test_who_has_to_go_lets_go_at_once() -> None:
    """The transport may take a while to end, and others need the room now."""
    wire = Wire(lambda _: Response(200, bytes(4 * MIB)), room=100_000)
    wire.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wire.connection.give_up()
    assert wire.transport.is_aborted
    assert wire.connection._holding() < 2 * MIB
    wire.hang_up()


def test_small_answers_that_nobody_takes_count_too() -> None:
    wire = Wire(lambda _: Response(200, bytes(50_000)))
    wire.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    memory = wire.edge.memory
    wire.edge.sweep()
    assert memory.held_bytes >= 50_000
    # All of it is in memory until the last byte is gone.
    wire.transport.take(wire.transport.unsent_bytes - 1)
    wire.edge.sweep()
    assert memory.held_bytes >= 50_000
    wire.transport.take(1)
    wire.edge.sweep()
    assert memory.held_bytes == 0


def test_looking_does_not_make_who_stands_still_seem_to_get_on() -> None:
    clock = ManualClock()
    wire = Wire(lambda _: Response(200, bytes(50_000)), clock=clock)
    wire.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wire.edge.sweep()
    clock.advance(STALLED_S)
    wire.edge.sweep()
    assert wire.edge.memory.make_room(clock.monotonic(), wire.edge.memory.bytes_max)
    assert wire.transport.is_aborted


def test_requests_that_wait_for_their_turn_count() -> None:
    """They take far more memory than their bytes."""
    held = Later()
    wire = Wire(lambda _: held)
    wire.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
    assert wire.edge.memory.held_bytes > 1_000_000
    wire.hang_up()
    assert wire.edge.memory.held_bytes == 0


Open = Callable[[], socket.socket]


@pytest.fixture(params=["plain", "tls"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA, certificate: tuple[Path, Path]
) -> Iterator[tuple[Served, Open]]:
    """A broker with a small budget, and what connects to it."""
    trust = ssl.create_default_context()
    authority.configure_trust(trust)

    def connect() -> socket.socket:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(PATIENCE_S)
        plain.connect(("127.0.0.1", served.port))
        return plain if request.param == "plain" else trust.wrap_socket(plain, server_hostname="localhost")

    tls = tls_context(*certificate) if request.param == "tls" else None
    with serving(tmp_path / "data", tls=tls, memory_bytes_max=BUDGET, body_bytes_max=2 * MIB) as served:
        served.engine.create_topic("orders", durability="os")
        yield served, connect


def head(call: str, size: int) -> bytes:
    return f"{call} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()


def put(client: socket.socket, size: int = 5) -> bytes:
    client.sendall(head("POST /v1/topics/orders/messages", size) + b"x" * size)
    return client.recv(65536)


def test_bodies_that_stall_hold_no_more_than_the_budget(place: tuple[Served, Open]) -> None:
    served, connect = place
    memory = served.server.edge.memory
    with ExitStack() as stack:
        other, *clients = [stack.enter_context(connect()) for _ in range(9)]
        for client in clients:
            client.sendall(head("POST /v1/topics/orders/messages", 2 * MIB) + b"x" * (2 * MIB - 1))
        # Eight times nearly 2 MiB are far more than the budget: some are told so.
        wait_until(lambda: memory.held_bytes <= BUDGET and memory.held_bytes > 0)
        assert put(other).startswith(b"HTTP/1.1 200 ")
        assert 0 < memory.held_bytes <= BUDGET
    wait_until(lambda: memory.held_bytes == 0)


def test_who_is_refused_is_told_to_come_back(place: tuple[Served, Open]) -> None:
    served, connect = place
    memory = served.server.edge.memory
    with connect() as client:
        # As if others held all of it, and got on.
        served.loop.call_soon_threadsafe(memory.hold, Holding(), BUDGET, 2.0**60)
        wait_until(lambda: memory.held_bytes == BUDGET)
        client.sendall(head("POST /v1/topics/orders/messages", MIB) + b"x" * 1000)
        answer = client.recv(65536)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 1\r\n" in answer
    assert b"server.memory_bytes_max" in answer


def test_answers_that_nobody_takes_hold_no_more_than_the_budget(place: tuple[Served, Open]) -> None:
    served, connect = place
    memory = served.server.edge.memory
    for _ in range(4):
        served.engine.queue("orders").put(b"x" * (MIB - 1000))
    with ExitStack() as stack:
        other, *clients = [stack.enter_context(connect()) for _ in range(9)]
        for number, client in enumerate(clients):
            client.sendall(head("GET /v1/topics/orders/partitions/0/messages", 0))
            # One byte, so that its answer has begun before the next one comes.
            assert client.recv(1) == b"H", number
        # Those that came first take nothing, and had to go.
        wait_until(lambda: len(served.server.edge.clients) < 9)
        assert 0 < memory.held_bytes <= BUDGET
        assert put(other).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: memory.held_bytes == 0)


@pytest.mark.parametrize(
    "call",
    [
        "GET /v1/topics/orders/partitions/0/messages",
        "GET /v1/topics/orders/partitions/0/messages Accept: application/vnd.quiver.frame",
        "GET /v1/topics/orders/groups/g/peek?limit=1000",
        "POST /v1/topics/orders/groups/g/receive",
        "POST /v1/topics/orders/groups/g/receive Accept: application/vnd.quiver.delivery",
        "POST /v1/topics/safe/groups/g/receive Accept: application/vnd.quiver.delivery",
    ],
)
def test_answers_take_no_more_than_the_budget_from_when_they_are_made(tmp_path: Path, call: str) -> None:
    """Counted are the bytes that the process has, not those that the budget knows of."""
    call, _, accept = call.partition(" Accept: ")
    body = b'{"max": 4}' if call.startswith("POST") else b""
    accept_line = f"Accept: {accept}\r\n".encode() if accept else b""
    request = head(call, len(body))[:-2] + accept_line + b"\r\n" + body
    with serving(tmp_path / "data", memory_bytes_max=24 * MIB, body_bytes_max=2 * MIB) as served:
        served.engine.create_topic("safe", durability="fsync", codec="none")
        served.engine.create_topic("orders", durability="os", codec="none")
        for topic in ("orders", "safe") if "safe" in call else ("orders",):
            queue = served.engine.queue(topic, "g")
            for _ in range(4 * (16 if call.startswith("POST") else 1)):
                queue.put(os.urandom(MIB))
        edge = served.server.edge
        with ExitStack() as stack:
            # What 16 clients ask for is 64 MiB, and in JSON a third more.
            tracemalloc.start()
            stack.callback(tracemalloc.stop)
            before, _ = tracemalloc.get_traced_memory()
            clients = [stack.enter_context(socket.socket()) for _ in range(16)]
            for client in clients:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.settimeout(PATIENCE_S)
                client.connect(("127.0.0.1", served.port))
                client.sendall(request)
            for client in clients:
                # Its answer has begun, or it had to go for another one.
                with suppress(ConnectionResetError):
                    client.recv(1)
            _, peak = tracemalloc.get_traced_memory()
        # One answer may always be made, whatever is held, and is there up to three times while it is: as
        # messages, and as text, which JSON makes a third larger, in parts and then in one.
        assert 4 * MIB < peak - before < edge.memory.bytes_max + 3.75 * 4 * MIB
        wait_until(lambda: edge.memory.held_bytes == 0)


def test_a_large_answer_arrives_as_a_whole(place: tuple[Served, Open]) -> None:
    served, connect = place
    values = [bytes([65 + number]) * (MIB - 1000) for number in range(3)]
    for value in values:
        served.engine.queue("orders").put(value)
    with connect() as client:
        client.sendall(head("GET /v1/topics/orders/partitions/0/messages", 0) + head("GET /healthz", 0))
        received = b""
        while not received.endswith(b'{"status":"ok"}'):
            received += client.recv(1 << 20)
    assert all(value in received for value in values)
    wait_until(lambda: served.server.edge.memory.held_bytes == 0)


def test_a_client_that_closes_its_side_gets_all_of_a_large_last_answer(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as served, socket.socket() as client:
        served.engine.queue("orders").put(b"x" * MIB)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", served.port))
        client.sendall(
            b"GET /v1/topics/orders/partitions/0/messages HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\n\r\n"
        )
        assert client.recv(1) == b"H"
        client.shutdown(socket.SHUT_WR)
        received = 0
        while part := client.recv(1 << 20):
            received += len(part)
        assert received > MIB


@pytest.mark.parametrize(
    "call",
    ["POST /v1/topics/orders/groups/g/receive", "GET /v1/stats", "POST /v1/groups/g/join", "GET /healthz"],
)
def test_a_call_that_takes_no_messages_takes_no_large_body(place: tuple[Served, Open], call: str) -> None:
    _, connect = place
    with connect() as client:
        client.sendall(head(call, 2 * MIB))
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")
    with connect() as client:
        # Without a length it is known when it is too much.
        client.sendall(f"{call} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        client.sendall(b"180000\r\n" + b" " * 0x100010)
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_key_is_asked_for_before_a_large_body_is_read(tmp_path: Path) -> None:
    key = create_key(tmp_path / "data", "read").text
    with serving(tmp_path / "data") as served:
        for text, status in ((key, b"403"), ("none", b"401")):
            with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as client:
                client.sendall(
                    head("POST /v1/topics/orders/messages", MIB)[:-2]
                    + f"Authorization: Bearer {text}\r\n\r\n".encode()
                )
                assert client.recv(65536).startswith(b"HTTP/1.1 " + status)
                assert served.server.edge.memory.held_bytes == 0


def test_handshakes_are_connections_and_have_an_end(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    tls = tls_context(*certificate)
    with (
        serving(tmp_path / "data", tls=tls, connections_max=3, read_timeout_ms=200) as served,
        ExitStack() as stack,
    ):
        edge = served.server.edge
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S))
            for _ in range(5)
        ]
        # They never say a word: three are there until their time is over, the others go at once.
        for client in clients:
            assert client.recv(100) == b""
        wait_until(lambda: not edge.clients and edge.memory.held_bytes == 0)


def test_handshakes_hold_no_more_than_the_budget(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    # A quarter of it is for those who have not shown a key yet.
    budget: dict[str, Any] = {
        "memory_bytes_max": 16 * HANDSHAKE_BYTES,
        "body_bytes_max": 16 * HANDSHAKE_BYTES,
    }
    with (
        serving(tmp_path / "data", tls=tls_context(*certificate), **budget) as served,
        ExitStack() as stack,
    ):
        edge, seen = served.server.edge, list[int]()
        for _ in range(10):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S))
            seen.append(edge.memory.held_bytes)
        wait_until(lambda: edge.memory.held_bytes == 4 * HANDSHAKE_BYTES)
        assert max(seen) <= 4 * HANDSHAKE_BYTES
        assert len(edge.clients) == 4
