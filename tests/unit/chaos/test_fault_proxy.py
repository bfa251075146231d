"""Links that are cut and healed, and what becomes of requests to a store."""

import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, RemoteDisconnected
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from socket import create_connection
from typing import Any

import pytest

from quivermq.chaos.fault_proxy import FaultLinks, StoreTrouble, fault_links


class Store(ThreadingHTTPServer):
    """Counts what is put."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.was_put = threading.Semaphore(0)
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Store

    def do_PUT(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"done")
        self.server.was_put.release()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class Chosen(Random):
    """Always the same trouble."""

    trouble = StoreTrouble.DELAY

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return self.trouble if self.trouble in seq else seq[0]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def links() -> Iterator[FaultLinks]:
    with fault_links() as links:
        yield links


def put(port: int, timeout_s: float = 30) -> tuple[int, bytes]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=timeout_s)) as connection:
        connection.request("PUT", "/object", b"bytes")
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_nothing_gets_through_a_link_that_is_cut_until_it_is_healed(
    store: Store, links: FaultLinks
) -> None:
    link = links.link(store.server_address[1], Random(1))
    assert put(link.port) == (200, b"done")
    link.cut()
    with closing(HTTPConnection("127.0.0.1", link.port, timeout=30)) as connection:
        connection.request("PUT", "/object", b"held back")
        assert connection.sock is not None
        connection.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.sock.recv(1)
        assert store.bodies == [b"bytes"]
        connection.sock.setblocking(True)
        link.heal()
        assert connection.getresponse().read() == b"done"
    assert store.bodies == [b"bytes", b"held back"]


@pytest.mark.parametrize(
    ("trouble", "answer", "times"),
    [
        (StoreTrouble.DELAY, (200, b"done"), 1),
        (StoreTrouble.DOUBLE, (200, b"done"), 2),
        (StoreTrouble.LATE, None, 1),
        (StoreTrouble.LOSE_REQUEST, None, 0),
        (StoreTrouble.LOSE_ANSWER, None, 1),
        (StoreTrouble.REFUSE, (503, b""), 0),
        (StoreTrouble.DENY_IT, (503, b""), 1),
    ],
)
def test_a_request_to_the_store_has_trouble(
    store: Store, links: FaultLinks, trouble: StoreTrouble, answer: tuple[int, bytes] | None, times: int
) -> None:
    rng = Chosen()
    rng.trouble = trouble
    link = links.store_link(store.server_address[1], rng)
    link.trouble = 1.0
    if answer is None:
        with pytest.raises(RemoteDisconnected):
            put(link.port)
    else:
        assert put(link.port) == answer
    for _ in range(times):
        assert store.was_put.acquire(timeout=30)
    assert len(store.bodies) == times
    assert link.troubled == 1


def test_the_end_leaves_nobody_who_was_let_in_just_then(store: Store) -> None:
    for _ in range(30):
        with ExitStack() as callers:
            with fault_links() as links:
                link = links.link(store.server_address[1], Random(1))
                for _ in range(40):
                    callers.enter_context(create_connection(("127.0.0.1", link.port)))
            # A task that nobody has ended says so when it is collected, and that is an error here.
            gc.collect()
