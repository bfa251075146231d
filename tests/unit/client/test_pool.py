"""Moving bytes, blocking and asynchronous: connections that are kept, cut, refused, and secret."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trustme
from support.threads import start
from unit.client.fake_server import FakeServer, Guest

from quivermq.client.asynchronous.pool import AsyncPool
from quivermq.client.blocking.pool import Pool
from quivermq.client.core.address import Address
from quivermq.client.core.call import Answer, Broken, Call
from quivermq.errors import Closing

GET = Call("GET", "/")
COMMON = "Host: h\r\n"

Exchange = Callable[..., list[Answer | Broken]]


def blocking(url: str, *calls: Call, timeout_s: float = 30, tls: Any = None) -> list[Answer | Broken]:
    pool = Pool(Address.parse(url), COMMON, timeout_s, tls)
    try:
        return [pool.exchange(call) for call in calls]
    finally:
        pool.close()


def asynchronous(url: str, *calls: Call, timeout_s: float = 30, tls: Any = None) -> list[Answer | Broken]:
    async def run() -> list[Answer | Broken]:
        pool = AsyncPool(Address.parse(url), COMMON, timeout_s, tls)
        try:
            return [await pool.exchange(call) for call in calls]
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.fixture(params=[blocking, asynchronous])
def exchange(request: pytest.FixtureRequest) -> Exchange:
    way: Exchange = request.param
    return way


def bodies(outcomes: list[Answer | Broken]) -> list[bytes | None]:
    return [outcome.body if isinstance(outcome, Answer) else None for outcome in outcomes]


def test_a_connection_is_used_again(exchange: Exchange) -> None:
    heard = []

    def talk(guest: Guest) -> None:
        for number in range(3):
            heard.append(guest.request())
            guest.ok(b"%d" % number)

    with FakeServer(talk) as server:
        assert bodies(exchange(server.url, GET, GET, Call("POST", "/x", body=b"abc"))) == [b"0", b"1", b"2"]
    assert heard[0] == b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    assert heard[2].endswith(b"Content-Length: 3\r\n\r\nabc")


def test_a_connection_that_the_server_ends_is_not_used_again(exchange: Exchange) -> None:
    def once(guest: Guest) -> None:
        guest.request()
        guest.say(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1")

    def again(guest: Guest) -> None:
        guest.request()
        guest.ok(b"2")

    with FakeServer(once, again) as server:
        assert bodies(exchange(server.url, GET, GET)) == [b"1", b"2"]


def test_an_answer_in_pieces_is_put_together(exchange: Exchange) -> None:
    body = bytes(range(256)) * 5000

    def talk(guest: Guest) -> None:
        guest.request()
        guest.say(b"HTTP/1.1 200 OK\r\nContent-")
        guest.say(b"Length: %d\r\n\r\n" % len(body))
        for position in range(0, len(body), 100_000):
            guest.say(body[position : position + 100_000])

    with FakeServer(talk) as server:
        assert bodies(exchange(server.url, GET)) == [body]


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", b"this is not HTTP\r\n\r\n"]
)
def test_a_broken_answer_was_sent_and_nobody_knows_more(exchange: Exchange, said: bytes) -> None:
    def talk(guest: Guest) -> None:
        guest.request()
        guest.say(said)

    with FakeServer(talk) as server:
        (outcome,) = exchange(server.url, GET)
    assert isinstance(outcome, Broken)
    assert outcome.was_sent
    assert outcome.reason.startswith(server.url)


def test_a_server_that_is_not_there_was_not_sent_anything(exchange: Exchange) -> None:
    with FakeServer() as server:
        url = server.url
    (outcome,) = exchange(url, GET)
    assert isinstance(outcome, Broken)
    assert not outcome.was_sent


def test_silence_has_an_end(exchange: Exchange) -> None:
    done = threading.Event()

    def talk(guest: Guest) -> None:
        guest.request()
        done.wait(60)

    with FakeServer(talk) as server:
        (outcome,) = exchange(server.url, GET, timeout_s=0.05)
        done.set()
    assert isinstance(outcome, Broken)
    assert outcome.was_sent


def test_a_refusal_is_heard_though_the_body_was_not_read(exchange: Exchange) -> None:
    def talk(guest: Guest) -> None:
        guest.connection.recv(1000)
        guest.say(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
        # As a broker does: read on for a moment, so that the answer is not lost with what is unread.
        while guest.connection.recv(1_000_000):
            pass

    with FakeServer(talk) as server:
        (outcome,) = exchange(server.url, Call("POST", "/", body=bytes(100_000)))
    assert isinstance(outcome, Answer)
    assert outcome.status == 413


def test_a_secure_connection_is_checked(exchange: Exchange) -> None:
    authority = trustme.CA()
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(theirs)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    def talk(guest: Guest) -> None:
        for _ in range(2):
            guest.request()
            guest.ok(b"secret")

    with FakeServer(talk, tls=theirs) as server:
        assert bodies(exchange(server.url, GET, GET, tls=trusting)) == [b"secret", b"secret"]
    with FakeServer(talk, tls=theirs) as server:
        (outcome,) = exchange(server.url, GET, tls=ssl.create_default_context())
    assert isinstance(outcome, Broken)
    assert not outcome.was_sent
    assert "certificate" in outcome.reason.lower()


def test_the_close_wakes_who_waits() -> None:
    arrived, done = threading.Event(), threading.Event()

    def talk(guest: Guest) -> None:
        guest.request()
        arrived.set()
        done.wait(60)

    with FakeServer(talk) as server:
        pool = Pool(Address.parse(server.url), COMMON, 30, None)
        waiting = start(lambda: pool.exchange(GET))
        assert arrived.wait(60)
        pool.close()
        with pytest.raises(Closing):
            waiting.result(60)
        with pytest.raises(Closing):
            pool.exchange(GET)
        done.set()


def test_more_than_was_asked_for_ends_the_connection(exchange: Exchange) -> None:
    def talk(guest: Guest) -> None:
        guest.request()
        guest.say(b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n")

    with FakeServer(talk) as server:
        (outcome,) = exchange(server.url, GET)
    assert isinstance(outcome, Answer)
    assert not outcome.keeps_alive
