"""HTTP as bytes: what is sent, and what is understood however it is cut into pieces."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.client.core.call import Answer, Call
from quivermq.client.core.http import BadResponse, ResponseParser, request_bytes
from quivermq.errors import Unreachable
from quivermq.model.json import FRAME


def parse(pieces: list[bytes], *, is_head: bool = False, at_end: bool = False) -> Answer:
    parser = ResponseParser(is_head=is_head)
    for index, piece in enumerate(pieces):
        found = parser.feed(piece)
        if found is not None:
            assert index == len(pieces) - 1 or not any(pieces[index + 1 :])
            assert parser.rest == b""
            return found
    assert at_end, "the answer is not complete"
    return parser.end()


def test_a_request_says_what_it_has_to() -> None:
    call = Call("POST", "/v1/x", {"a": "1 ü", "b": "&"}, b"body", FRAME, accept="text/plain")
    assert request_bytes(call, "Host: h\r\n", "/prefix") == (
        b"POST /prefix/v1/x?a=1+%C3%BC&b=%26 HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n"
        b"Content-Type: application/vnd.quiver.frame\r\nContent-Length: 4\r\n\r\nbody"
    )


def test_a_request_without_a_body_says_so_where_one_could_be() -> None:
    assert request_bytes(Call("GET", "/"), "") == b"GET / HTTP/1.1\r\n\r\n"
    assert request_bytes(Call("DELETE", "/"), "") == b"DELETE / HTTP/1.1\r\n\r\n"
    assert request_bytes(Call("POST", "/"), "") == b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"


BODY = bytes(range(256))
RESPONSES = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 256\r\nX: y\r\n\r\n" + BODY, 200, BODY, True),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "304": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "no reason": (b"HTTP/1.1 404\r\nContent-Length: 1\r\n\r\nx", 404, b"x", True),
    "close": (b"HTTP/1.1 500 Oh\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", 500, b"no", False),
    "1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", False),
    "1.0 kept": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
        *(200, b"x", True),
    ),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:1\r\n\r\nx",
        *(200, b"x", True),
    ),
    "chunks": (
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nhello\r\n00A;name=value\r\n, chunks!\n\r\n0\r\n\r\n"
        ),
        *(200, b"hello, chunks!\n", True),
    ),
    "trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n",
        *(200, b"x", True),
    ),
}


@given(st.sampled_from(sorted(RESPONSES)), st.lists(st.integers(0, 400), max_size=30))
def test_any_pieces_of_an_answer_are_understood_alike(name: str, cuts: list[int]) -> None:
    whole, status, body, keeps_alive = RESPONSES[name]
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    found = parse([whole[a:b] for a, b in itertools.pairwise(edges)])
    assert (found.status, found.body, found.keeps_alive) == (status, body, keeps_alive)


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=10))
def test_a_body_may_end_with_the_connection(body: bytes, cuts: list[int]) -> None:
    whole = b"HTTP/1.1 200 OK\r\n\r\n" + body
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    found = parse([whole[a:b] for a, b in itertools.pairwise(edges)], at_end=True)
    assert (found.body, found.keeps_alive) == (body, False)


def test_the_answer_to_a_head_has_no_body() -> None:
    found = parse([b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"], is_head=True)
    assert (found.body, found.headers["content-length"]) == (b"", "99")


def test_bytes_behind_the_answer_are_kept_apart() -> None:
    parser = ResponseParser()
    assert parser.feed(b"HTTP/1.1 204 No Content\r\n\r\nmore") is not None
    assert parser.rest == b"more"


def test_what_is_missing_is_known() -> None:
    parser = ResponseParser()
    assert (parser.has_begun, parser.wanted_bytes) == (False, 0)
    parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")
    assert (parser.has_begun, parser.wanted_bytes) == (True, 90)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFF\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(BadResponse):
        ResponseParser().feed(data)
    assert issubclass(BadResponse, Unreachable)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
    ],
)
def test_an_answer_that_is_cut_off_is_none(data: bytes) -> None:
    parser = ResponseParser()
    assert parser.feed(data) is None
    with pytest.raises(BadResponse):
        parser.end()


def test_a_body_has_a_limit_before_it_is_read() -> None:
    parser = ResponseParser(body_bytes_max=10)
    with pytest.raises(BadResponse, match="larger than 10 bytes"):
        parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n")
    parser = ResponseParser(body_bytes_max=10)
    parser.feed(b"HTTP/1.1 200 OK\r\n\r\n")
    with pytest.raises(BadResponse, match="larger than 10 bytes"):
        parser.feed(bytes(11))


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_fail_in_another_way(data: bytes) -> None:
    parser = ResponseParser()
    try:
        parser.feed(data)
        parser.end()
    except BadResponse:
        return
