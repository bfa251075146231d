"""Serving on real sockets: TLS, drains, signals, limits, and addresses that are refused."""

import http.client
import math
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.broker import Served, serving
from support.manual_clock import ManualClock
from support.threads import start, wait_until

from quivermq.engine import engine_of
from quivermq.errors import Closing, Conflict, InvalidRequest
from quivermq.opening import open_directory
from quivermq.server.keys import create_key
from quivermq.server.run import Server, serve
from quivermq.server.tls import tls_context
from quivermq.settings import ServerSettings

PATH = "/v1/topics/orders/messages"
RECEIVE = "/v1/topics/orders/groups/g/receive"


def call(
    port: int,
    method: str = "GET",
    path: str = "/healthz",
    body: bytes | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
    else:
        connection = http.client.HTTPSConnection("localhost", port, context=tls)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@contextmanager
def talking(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        yield client


def begin_a_body(client: socket.socket) -> None:
    """Send a head, and return when the broker has read it and waits for the body."""
    client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert client.recv(100).startswith(b"HTTP/1.1 100 ")


def is_answering(served: Served) -> bool:
    """Whether the broker works on an answer, for which there is no deadline."""
    return any(math.isinf(client.deadline) for client in list(served.server.edge.clients))


def everything(client: socket.socket) -> bytes:
    received = b""
    while more := client.recv(65536):
        received += more
    return received


def sweep(served: Served) -> None:
    served.loop.call_soon_threadsafe(served.server.edge.sweep)


def test_what_is_published_is_in_the_queue_afterwards(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as served:
        status, _ = call(served.port, "POST", PATH, b"tea")
        assert status == 200
        assert served.url == f"http://127.0.0.1:{served.port}"
    with open_directory(tmp_path / "data") as engine:
        assert [message.value for message in engine.queue("orders").read()] == [b"tea"]


def test_requests_that_are_sent_together_are_answered_in_order(tmp_path: Path) -> None:
    one = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nQuiver-Request-Id: %d\r\n\r\na"
    with serving(tmp_path / "data") as served, talking(served) as client:
        client.sendall(b"".join(one % (PATH.encode(), number) for number in range(50)))
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        received = everything(client)
    places = [received.index(b"Quiver-Request-Id: %d\r\n" % number) for number in range(50)]
    assert places == sorted(places)
    assert received.count(b"HTTP/1.1 200 OK") == 51


def test_a_large_body_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with serving(tmp_path / "data", body_bytes_max=1000) as served, talking(served) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n")
        assert everything(client).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_sends_a_large_body_anyway_reads_the_answer(tmp_path: Path) -> None:
    with serving(tmp_path / "data", body_bytes_max=1000) as served:
        assert call(served.port, "POST", PATH, b"a" * 4_000_000)[0] == 413


def test_a_client_that_stops_in_the_middle_of_a_request_is_cut_off(tmp_path: Path) -> None:
    clock = ManualClock()
    with serving(tmp_path / "data", clock=clock, read_timeout_ms=5000) as served, talking(served) as client:
        begin_a_body(client)
        clock.advance(6)
        sweep(served)
        assert everything(client).startswith(b"HTTP/1.1 408 ")


def test_a_connection_too_many_is_answered_with_503(tmp_path: Path) -> None:
    with serving(tmp_path / "data", connections_max=1) as served, talking(served) as first:
        first.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(12) == b"HTTP/1.1 200"
        with talking(served) as second:
            assert everything(second).startswith(b"HTTP/1.1 503 ")


def test_a_key_is_asked_for_where_there_are_keys(tmp_path: Path) -> None:
    key = create_key(tmp_path / "data", "write", ["orders"])
    with serving(tmp_path / "data") as served:
        bearer = {"Authorization": f"Bearer {key.text}"}
        assert call(served.port, "POST", PATH, b"a")[0] == 401
        assert call(served.port, "POST", PATH, b"a", headers=bearer)[0] == 200
        assert call(served.port, "POST", PATH.replace("orders", "tea"), b"a", headers=bearer)[0] == 403
        assert call(served.port)[0] == 200


def test_without_a_key_a_large_body_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    write, read = create_key(tmp_path, "write"), create_key(tmp_path, "read")
    body = b"a" * 1_000_000
    with serving(tmp_path) as served:
        for path, key, status in (
            (PATH, "none", b"401"),
            (PATH, read.text, b"403"),
            ("/nowhere", write.text, b"404"),
        ):
            with talking(served) as client:
                client.sendall(
                    f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n".encode()
                    + b"Content-Length: %d\r\n\r\n" % len(body)
                )
                assert everything(client).startswith(b"HTTP/1.1 %b " % status)
        headers = {"Authorization": f"Bearer {write.text}"}
        assert call(served.port, "POST", PATH, body, headers=headers)[0] == 200


def test_a_large_body_counts_as_one_request(tmp_path: Path) -> None:
    with serving(tmp_path, clock=ManualClock(), requests_per_second=2) as served:
        body = b"a" * 100_000
        assert [call(served.port, "POST", PATH, body)[0] for _ in range(3)] == [200, 200, 429]


def test_without_keys_a_web_page_of_another_site_can_do_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        for headers in ({"Origin": "https://evil.example"}, {"Host": f"evil.example:{served.port}"}):
            assert call(served.port, "POST", PATH, b"tea", headers=headers)[0] == 403
        assert served.engine.topics() == []


def test_a_client_that_asks_too_often_is_told_to_wait(tmp_path: Path) -> None:
    with serving(tmp_path / "data", clock=ManualClock(), requests_per_second=2) as served:
        assert [call(served.port, "GET", "/v1/topics")[0] for _ in range(3)] == [200, 200, 429]


def test_draining_answers_who_waits_and_refuses_who_comes(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as served:
        call(served.port, "POST", PATH, b"tea")
        call(served.port, "POST", RECEIVE, b"{}")
        waiting = start(lambda: call(served.port, "POST", RECEIVE, b'{"wait_ms": 60000}'))
        wait_until(lambda: is_answering(served))
        served.drain()
        assert waiting.result() == (200, b'{"messages":[]}')
        with pytest.raises(ConnectionRefusedError):
            call(served.port)


def test_draining_lets_a_running_call_finish(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as served:
        begun, go_on = threading.Event(), threading.Event()
        engine = engine_of(served.engine)
        verify = engine.verify

        def slow() -> Any:
            begun.set()
            go_on.wait()
            return verify()

        engine.verify = slow  # type: ignore[method-assign]
        answer = start(lambda: call(served.port, "POST", "/v1/verify"))
        begun.wait()
        drained = start(served.drain)
        wait_until(lambda: served.app.broker.is_draining)
        go_on.set()
        assert answer.result()[0] == 200
        drained.result()


def test_draining_does_not_wait_for_ever(tmp_path: Path) -> None:
    with serving(tmp_path / "data", drain_timeout_ms=1) as served, talking(served) as client:
        begin_a_body(client)
        served.drain()
        assert not served.server.edge.clients


def test_a_port_that_is_in_use_is_an_error_that_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as served:
        engine = open_directory(tmp_path / "two")
        with pytest.raises(Conflict, match=f"port {served.port} of 127.0.0.1 is in use"):
            serve(engine_of(engine), ServerSettings(port=served.port))
        with pytest.raises(Closing):
            engine.topics()


# TLS.


def test_tls_is_spoken_with_a_certificate(
    tmp_path: Path, authority: trustme.CA, certificate: tuple[Path, Path]
) -> None:
    client = ssl.create_default_context()
    authority.configure_trust(client)
    with serving(tmp_path / "data", body_bytes_max=1000, tls=tls_context(*certificate)) as served:
        assert served.url.startswith("https://")
        assert call(served.port, tls=client)[0] == 200
        assert call(served.port, "POST", PATH, b"a" * 1001, tls=client)[0] == 413


def test_who_does_not_speak_tls_gets_nowhere(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with serving(tmp_path / "data", tls=tls_context(*certificate)) as served, talking(served) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in everything(client)


# Addresses.


def test_serving_others_without_keys_is_refused(tmp_path: Path) -> None:
    engine = open_directory(tmp_path)
    with pytest.raises(InvalidRequest, match="quiver key create"):
        serve(engine_of(engine), ServerSettings(host="0.0.0.0", port=0))
    with pytest.raises(Closing):
        engine.topics()


# Signals.


def served_until_told(
    path: Path, act: Callable[[Server], None], *, told: signal.Signals = signal.SIGTERM, **settings: Any
) -> None:
    """Serve in this thread while another one acts and then sends a signal."""

    def ready(server: Server) -> None:
        def run() -> None:
            try:
                act(server)
            finally:
                os.kill(os.getpid(), told)

        acting.append(start(run))

    acting: list[Any] = []
    serve(engine_of(open_directory(path)), ServerSettings(port=0, **settings), ready=ready)
    acting[0].result()


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("durability", ["fsync", "os", "buffered"])
def test_what_was_acknowledged_before_a_signal_is_there_afterwards(
    tmp_path: Path, durability: str, told: signal.Signals
) -> None:
    def publish(server: Server) -> None:
        for number in range(20):
            status, _ = call(server.port, "POST", f"{PATH}?durability={durability}", b"%d" % number)
            assert status == 200

    served_until_told(tmp_path / "data", publish, told=told)
    with open_directory(tmp_path / "data") as engine:
        values = [message.value for message in engine.queue("orders").read(limit=100)]
    assert values == [b"%d" % number for number in range(20)]


def test_a_program_has_its_signals_back_when_the_broker_has_ended(tmp_path: Path) -> None:
    told: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _: told.append(number)) for number in numbers}
    try:
        served_until_told(tmp_path / "data", lambda _: None)
        assert told == []
        for number in numbers:
            os.kill(os.getpid(), number)
        wait_until(lambda: told == list(numbers))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_second_signal_cuts_the_draining_short(tmp_path: Path) -> None:
    def hold(server: Server) -> None:
        client = socket.create_connection(("127.0.0.1", server.port))
        held.append(client)
        begin_a_body(client)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: server.edge.is_draining)

    held: list[socket.socket] = []
    served_until_told(tmp_path / "data", hold, drain_timeout_ms=3_600_000)
    with held[0] as client, suppress(ConnectionResetError):
        assert everything(client) == b""
