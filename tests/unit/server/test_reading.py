"""Bytes to requests: what is read, what is refused, and that it does not matter how the bytes arrive."""

import json
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.server.http import Request, Response
from quivermq.server.reading import Reader
from quivermq.settings import ServerSettings

pytestmark = pytest.mark.fault("hostile", "broker")


def read(*parts: bytes, **settings: Any) -> tuple[Reader, list[Request]]:
    requests: list[Request] = []
    reader = Reader(ServerSettings(**settings), "192.0.2.1", requests.append, lambda: "made")
    for part in parts:
        reader.feed(part)
    return reader, requests


def refused(*parts: bytes, **settings: Any) -> tuple[int, dict[str, Any]]:
    reader, requests = read(*parts, **settings)
    assert requests == []
    assert reader.refusal is not None
    error: dict[str, Any] = json.loads(reader.refusal.body)["error"]
    return reader.refusal.status, error


def test_a_request_is_read_with_all_its_parts() -> None:
    _, [request] = read(
        b"POST /v1/topics/orders/messages?key=a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
        b"X-Odd: \xe4\r\nContent-Length: 5\r\n\r\nhello"
    )
    assert (request.method, request.path, request.query) == (
        "POST",
        "/v1/topics/orders/messages",
        {"key": "a"},
    )
    assert request.headers["content-type"] == "text/plain"
    assert request.headers["x-odd"].encode("latin-1") == b"\xe4"
    assert (request.body, request.client) == (b"hello", "192.0.2.1")


def test_a_body_may_come_in_chunks() -> None:
    _, [request] = read(
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2;a=b\r\nde\r\n0\r\n\r\n"
    )
    assert request.body == b"abcde"


def test_what_follows_the_last_chunk_is_no_header_of_any_request() -> None:
    _, requests = read(
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\nAuthorization: Bearer a\r\n\r\n"
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert ["authorization" in request.headers for request in requests] == [False, False]


def test_a_header_that_comes_twice_is_one_with_both_values() -> None:
    _, [request] = read(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: a\r\naccept: b\r\n\r\n")
    assert request.headers["accept"] == "a, b"


def test_a_url_may_name_its_server() -> None:
    _, [request] = read(b"GET http://x:1/a?b=c HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (request.path, request.query_string) == ("/a", "b=c")


@pytest.mark.parametrize(
    ("sent", "used"),
    [(b"a.B-9_", "a.B-9_"), (b"a" * 64, "a" * 64), (b"a" * 65, "made"), (b"a b", "made"), (b"", "made")],
)
def test_a_request_id_is_used_when_it_is_a_valid_one(sent: bytes, used: str) -> None:
    _, [request] = read(b"GET / HTTP/1.1\r\nHost: x\r\nQuiver-Request-Id: " + sent + b"\r\n\r\n")
    assert request.id == used


@pytest.mark.parametrize(
    ("head", "is_last"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", True),
    ],
)
def test_whether_the_connection_stays_open_is_the_clients_choice(head: bytes, is_last: bool) -> None:
    reader, requests = read(head, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reader.is_last == is_last
    assert len(requests) == (1 if is_last else 2)
    assert reader.refusal is None


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/topics\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\na",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\nA: b\n\n",
    ],
)
def test_what_is_not_clearly_one_request_is_refused(request_bytes: bytes) -> None:
    status, error = refused(request_bytes)
    assert (status, error["code"]) == (400, "invalid_request")


def test_a_body_that_is_announced_too_large_is_refused_before_it_is_read() -> None:
    status, error = refused(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n", body_bytes_max=10)
    assert (status, error["code"], error["size_bytes"]) == (413, "message_too_large", 11)


def test_a_body_as_large_as_allowed_is_read() -> None:
    _, [request] = read(
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789", body_bytes_max=10
    )
    assert request.body == b"0123456789"


def test_chunks_are_refused_at_the_limit() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert refused(head, b"8\r\n01234567\r\n", b"8\r\n0123", body_bytes_max=10)[0] == 413
    assert read(head, b"a\r\n0123456789\r\n0\r\n\r\n", body_bytes_max=10)[1][0].body == b"0123456789"


@pytest.mark.parametrize("size", [1, 100, 4096])
def test_a_head_that_is_too_long_is_refused_however_it_arrives(size: int) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 3000 + b"\r\n\r\n"
    parts = [head[start : start + size] for start in range(0, len(head), size)]
    status, error = refused(*parts, head_bytes_max=1024)
    assert (status, error["code"]) == (431, "head_too_large")


@pytest.mark.parametrize("first", [1, 500, 1000, 1990, 2015])
def test_a_long_head_is_refused_however_it_is_divided(first: int) -> None:
    head = b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    status, error = refused(head[:first], head[first:], head_bytes_max=1024)
    assert (status, error["code"]) == (431, "head_too_large")


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /aaaaaaaa",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: a",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ",
    ],
)
def test_nothing_goes_on_for_ever(endless: bytes) -> None:
    status, _ = refused(endless, *[b"a" * 100] * 20, head_bytes_max=1024)
    assert status == 431


def test_many_short_requests_at_once_are_no_long_head() -> None:
    one = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    reader, requests = read(one * 100 + one[:10], one[10:], head_bytes_max=1024)
    assert len(requests) == 101
    assert reader.refusal is None


def test_only_a_client_that_waits_for_it_is_told_to_continue() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    assert read(head)[0].wants_continue
    assert not read(head + b"ab")[0].wants_continue
    assert not read(head.replace(b"1.1", b"1.0"))[0].wants_continue


def test_another_expectation_is_refused() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 2\r\n\r\n"
    assert refused(head)[0] == 417


def test_an_error_of_our_own_is_not_blamed_on_the_client() -> None:
    def fail(_: Request) -> None:
        raise ZeroDivisionError

    reader = Reader(ServerSettings(), "", fail, lambda: "made")
    with pytest.raises(httptools.HttpParserCallbackError):
        reader.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reader.refusal is None


LARGE = 20_000


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % LARGE,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % LARGE,
    ],
)
def test_a_large_body_is_not_read_from_who_may_not_send_it(head: bytes) -> None:
    requests: list[Request] = []
    asked: list[Request] = []

    def refuse(request: Request) -> Response:
        asked.append(request)
        return Response(401)

    reader = Reader(ServerSettings(), "", requests.append, lambda: "made", refuse)
    reader.feed(head)
    reader.feed(b"a" * LARGE)
    reader.feed(b"\r\n0\r\n\r\n")
    assert (len(asked), requests) == (1, [])
    assert reader.refusal is not None
    assert reader.refusal.status == 401


def test_who_sends_a_large_body_is_looked_at_once_and_who_sends_a_small_one_not_at_all() -> None:
    requests: list[Request] = []
    asked: list[Request] = []
    reader = Reader(ServerSettings(), "", requests.append, lambda: "made", asked.append)
    for size in (100, LARGE, 200):
        reader.feed(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 100):
            reader.feed(b"a" * 100)
    assert [len(request.body) for request in requests] == [100, LARGE, 200]
    assert asked == [requests[1]]


def test_a_body_of_many_tiny_parts_is_whole_and_is_not_held_part_by_part() -> None:
    requests: list[Request] = []
    reader = Reader(ServerSettings(), "", requests.append, lambda: "made")
    for last in (b"x", b"y"):
        reader.feed(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(50):
            reader.feed(b"2\r\nab\r\n" * 100)
            assert len(reader._body) < 1100
        reader.feed(b"1\r\n" + last + b"\r\n0\r\n\r\n")
    assert [request.body for request in requests] == [b"ab" * 5000 + b"x", b"ab" * 5000 + b"y"]


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_no_bytes_make_it_fail(parts: list[bytes]) -> None:
    reader, requests = read(*parts)
    assert reader.refusal is None or reader.refusal.status >= 400
    assert all(isinstance(request.path, str) for request in requests)


def test_a_refusal_is_one_whatever_is_being_handled_further_up() -> None:
    statuses: list[int] = []
    try:
        raise IndexError
    except IndexError:
        statuses.append(refused(b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n")[0])
    assert statuses == [400]


def test_what_has_arrived_is_let_go_of_as_soon_as_nothing_more_is_read() -> None:
    start = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n"
    for end in (Reader.stop, lambda reader: reader.refuse(Response(503))):
        reader, _ = read(start + b"x" * 8000)
        assert reader.held_bytes == 8000
        end(reader)
        assert (reader.held_bytes, len(reader._body), len(reader._early_body)) == (0, 0, 0)


def test_so_many_headers_are_too_many() -> None:
    """Short ones take far more memory than they have bytes."""
    lines = b"".join(b"h%d:\r\n" % number for number in range(199))
    _, [request] = read(b"GET / HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")
    assert len(request.headers) == 200
    status, error = refused(b"GET / HTTP/1.1\r\nHost: x\r\n" + lines + b"one-more:\r\n\r\n")
    assert (status, error["code"]) == (431, "head_too_large")
    assert "200" in error["message"]


def test_a_body_that_is_compressed_on_its_way_is_refused() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Encoding: "
    for coding in (b"gzip", b"identity, zstd"):
        status, error = refused(head + coding + b"\r\n\r\nabc")
        assert (status, error["code"]) == (415, "unsupported_encoding")
    _, [request] = read(head + b"Identity\r\n\r\nabc")
    assert request.body == b"abc"
