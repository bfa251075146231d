"""One connection: answers in order, in few writes, and an end for clients that are slow, silent or gone."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.manual_clock import ManualClock
from support.transport import Wire

from quivermq.server.http import Request, Response, ResponseStream, json_response
from quivermq.server.memory import Making, Memory

GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"


def told_back(request: Request) -> Response:
    """An answer by which the request can be recognised."""
    return json_response(
        [request.method, request.path, request.query_string, request.body.decode("latin-1")]
    )


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Held:
    """Answers that come when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.asked: list[str] = []
        self.answers: dict[str, asyncio.Future[Response]] = {}

    def __call__(self, request: Request) -> "asyncio.Future[Response]":
        self.asked.append(request.path)
        return self.answers.setdefault(request.path, self.loop.create_future())

    def answer(self, path: str, response: Response | None = None) -> None:
        self.answers[path].set_result(response or Response(200, path.encode()))
        turn(self.loop)


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop do what it has to do now."""
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_an_answer_has_all_that_an_answer_needs() -> None:
    wire = Wire(lambda _: Response(201, b"{}", headers={"Allow": "GET"}))
    wire.send(b"GET / HTTP/1.1\r\nHost: x\r\nQuiver-Request-Id: mine\r\n\r\n")
    assert wire.sent == (
        b"HTTP/1.1 201 Created\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\nCache-Control: no-store\r\nAllow: GET\r\n"
        b"X-Content-Type-Options: nosniff\r\nQuiver-Request-Id: mine\r\n\r\n{}"
    )
    assert not wire.transport.is_over


def test_ids_that_the_broker_makes_differ() -> None:
    wire = Wire(told_back)
    wire.send(GET % b"a", GET % b"b")
    assert len({request.id for request in wire.requests}) == 2


def test_an_answer_without_a_body_says_nothing_of_one() -> None:
    wire = Wire(lambda _: Response(204))
    assert b"\r\nContent-" not in wire.send(GET % b"")


@pytest.mark.parametrize(
    "sent",
    [
        GET % b"",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
    ],
)
def test_every_answer_keeps_browsers_from_guessing_and_keeping(sent: bytes) -> None:
    answer = Wire(lambda _: Response(200, b"{}")).send(sent)
    assert answer.count(b"X-Content-Type-Options: nosniff\r\n") == 1
    assert answer.count(b"Cache-Control: no-store\r\n") == 1


def test_what_may_be_kept_says_so_itself() -> None:
    answer = Wire(lambda _: Response(200, b"", headers={"Cache-Control": "no-cache"})).send(GET % b"")
    assert answer.count(b"Cache-Control") == 1


def test_head_is_answered_without_the_body_but_with_its_length() -> None:
    wire = Wire(lambda _: Response(200, b"12345"))
    answer = wire.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"Content-Length: 5\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_a_value_cannot_add_headers_to_an_answer() -> None:
    wire = Wire(lambda _: Response(200, headers={"Allow": "a\r\nSet-Cookie: b"}))
    assert b"\r\nSet-Cookie" not in wire.send(GET % b"")


def test_requests_that_come_together_are_answered_in_one_write() -> None:
    wire = Wire(told_back)
    wire.send(GET % b"a" + GET % b"b" + GET % b"c")
    assert [request.path for request in wire.requests] == ["/a", "/b", "/c"]
    assert wire.statuses == [200, 200, 200]
    assert wire.transport.writes == 1


def test_the_connection_is_closed_when_the_client_says_so() -> None:
    wire = Wire(told_back)
    answer = wire.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + GET % b"late")
    assert wire.statuses == [200]
    assert b"Connection: close\r\n" in answer
    assert wire.transport.is_closed


def test_an_old_client_is_told_that_the_connection_stays_open() -> None:
    wire = Wire(told_back)
    answer = wire.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"Connection: keep-alive\r\n" in answer
    assert not wire.transport.is_over


def test_a_request_begins_when_the_one_before_it_is_answered(loop: asyncio.AbstractEventLoop) -> None:
    held = Held(loop)
    wire = Wire(held, loop=loop)
    wire.send(GET % b"a" + GET % b"b")
    assert held.asked == ["/a"]
    assert wire.transport.is_reading_paused
    held.answer("/a")
    assert held.asked == ["/a", "/b"]
    assert not wire.transport.is_reading_paused
    held.answer("/b")
    assert wire.sent.index(b"/a") < wire.sent.index(b"/b")


def test_what_is_no_request_is_answered_after_those_before_it(loop: asyncio.AbstractEventLoop) -> None:
    held = Held(loop)
    wire = Wire(held, loop=loop)
    wire.send(GET % b"a" + b"nonsense\r\n\r\n")
    assert wire.sent == b""
    held.answer("/a")
    assert wire.statuses == [200, 400]
    assert wire.transport.has_eof


def test_after_a_refusal_the_connection_stays_until_the_client_has_read_it() -> None:
    clock = ManualClock()
    wire = Wire(told_back, clock=clock, body_bytes_max=10)
    wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", b"a" * 500, b"a" * 500)
    assert wire.statuses == [413]
    assert not wire.transport.is_over
    clock.advance(4)
    wire.edge.sweep()
    assert wire.transport.is_aborted


def test_a_client_that_waits_for_it_is_told_to_send_the_body() -> None:
    wire = Wire(told_back)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    assert wire.send(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.send(b"ab")
    assert wire.statuses == [100, 200]


def test_it_is_told_only_when_it_is_its_turn(loop: asyncio.AbstractEventLoop) -> None:
    held = Held(loop)
    wire = Wire(held, loop=loop)
    wire.send(
        GET % b"a", b"POST /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    )
    assert wire.sent == b""
    held.answer("/a")
    assert wire.statuses == [200, 100]
    wire.send(b"ab")
    assert held.asked == ["/a", "/b"]


def test_a_body_that_is_too_large_is_not_asked_for() -> None:
    wire = Wire(told_back, body_bytes_max=1)
    wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert wire.statuses == [413]


def test_what_nobody_waits_for_any_more_is_cancelled(loop: asyncio.AbstractEventLoop) -> None:
    held = Held(loop)
    wire = Wire(held, loop=loop)
    wire.send(GET % b"a" + GET % b"b")
    wire.hang_up()
    turn(loop)
    assert held.answers["/a"].cancelled()
    assert held.asked == ["/a"]
    assert wire.edge.clients == set()


@pytest.mark.parametrize("how", ["answered", "cancelled"])
def test_the_room_for_an_answer_is_given_back(loop: asyncio.AbstractEventLoop, how: str) -> None:
    held, making = Held(loop), Making(Memory(1000), 1, lambda: 0.0)
    wire = Wire(held, loop=loop)
    wire.send(GET % b"a")
    wire.requests[0].portion = loop.run_until_complete(making.begin(10))
    if how == "answered":
        held.answer("/a")
    else:
        wire.hang_up()
    turn(loop)
    assert making.count == 0


def test_a_stream_that_nobody_reads_ends_at_once_with_its_key() -> None:
    wire = Wire(listener := Listener(), room=100)
    wire.send(GET % b"")
    assert listener.stream is not None
    listener.stream.write(b"a" * 1000)
    wire.edge.send_away(lambda _: False)
    assert wire.transport.is_aborted
    assert listener.stream.is_closed


def test_a_client_that_stops_sending_is_gone(loop: asyncio.AbstractEventLoop) -> None:
    wire = Wire(Held(loop), loop=loop)
    wire.send(GET % b"a")
    wire.connection.eof_received()
    assert wire.transport.is_closed


def test_a_client_that_does_not_take_its_answers_gets_no_more() -> None:
    wire = Wire(lambda _: Response(200, b"a" * 100_000), room=150_000)
    wire.send((GET % b"") * 4)
    assert len(wire.requests) == 2
    assert wire.transport.is_reading_paused
    wire.transport.take(wire.transport.unsent_bytes)
    assert len(wire.requests) == 4
    wire.transport.take(wire.transport.unsent_bytes)
    assert not wire.transport.is_reading_paused


def test_a_client_that_takes_nothing_is_cut_off_and_one_that_is_slow_is_not() -> None:
    clock = ManualClock()
    wire = Wire(lambda _: Response(200, b"a" * 1000), clock=clock, room=100, write_timeout_ms=1000)
    wire.send(GET % b"")
    for _ in range(3):
        wire.transport.take(10)
        clock.advance(1)
        wire.edge.sweep()
        assert not wire.transport.is_over
    clock.advance(1)
    wire.edge.sweep()
    assert wire.transport.is_aborted


def test_a_request_that_takes_too_long_to_arrive_is_answered_with_408() -> None:
    clock = ManualClock()
    wire = Wire(told_back, clock=clock, read_timeout_ms=10_000)
    for byte in b"GET / HTTP":
        wire.send(bytes([byte]))
        clock.advance(0.9)
        wire.edge.sweep()
    assert wire.sent == b""
    clock.advance(1)
    wire.edge.sweep()
    assert wire.statuses == [408]
    assert b'"code":"request_timeout"' in wire.sent
    clock.advance(4)
    wire.edge.sweep()
    assert wire.transport.is_aborted


def test_a_connection_without_requests_is_closed_some_time() -> None:
    clock = ManualClock()
    wire = Wire(told_back, clock=clock, idle_timeout_ms=60_000, read_timeout_ms=1000)
    wire.send(GET % b"")
    clock.advance(59)
    wire.edge.sweep()
    assert not wire.transport.is_over
    clock.advance(2)
    wire.edge.sweep()
    assert wire.transport.is_aborted
    assert wire.statuses == [200]


def test_a_connection_that_never_sends_anything_is_closed_sooner() -> None:
    clock = ManualClock()
    wire = Wire(told_back, clock=clock, read_timeout_ms=1000)
    clock.advance(1)
    wire.edge.sweep()
    assert wire.transport.is_aborted


def test_an_answer_may_take_as_long_as_it_takes(loop: asyncio.AbstractEventLoop) -> None:
    clock = ManualClock()
    held = Held(loop)
    wire = Wire(held, loop=loop, clock=clock)
    wire.send(GET % b"a")
    clock.advance(10_000)
    wire.edge.sweep()
    held.answer("/a")
    assert wire.statuses == [200]


def test_a_connection_too_many_is_told_so() -> None:
    first = Wire(told_back, connections_max=1)
    second = Wire(told_back, edge=first.edge)
    assert second.statuses == [503]
    assert b"Retry-After: 1\r\n" in second.sent
    first.hang_up()
    second.hang_up()
    third = Wire(told_back, edge=first.edge)
    third.send(GET % b"")
    assert third.statuses == [200]


def test_far_too_many_are_cut_off() -> None:
    first = Wire(told_back, connections_max=1)
    wires = [Wire(told_back, edge=first.edge) for _ in range(200)]
    assert wires[0].statuses == [503]
    assert wires[-1].transport.is_aborted
    assert len(first.edge.clients) < 200


def test_draining_closes_the_idle_and_lets_the_others_finish(loop: asyncio.AbstractEventLoop) -> None:
    held = Held(loop)
    idle, busy = Wire(told_back), Wire(held, loop=loop)
    arriving = Wire(told_back)
    busy.send(GET % b"a" + GET % b"b")
    arriving.send((GET % b"c")[:10])
    for wire in (idle, busy, arriving):
        wire.edge.drain()
    assert idle.transport.is_closed
    assert not busy.transport.is_over
    assert not arriving.transport.is_over
    arriving.send((GET % b"c")[10:])
    held.answer("/a")
    held.answer("/b")
    assert busy.statuses == [200, 200]
    assert busy.sent.count(b"Connection: close") == arriving.sent.count(b"Connection: close") == 1
    assert busy.transport.is_closed
    assert arriving.transport.is_closed


class Listener:
    """Takes a stream and keeps it."""

    def __init__(self) -> None:
        self.stream: ResponseStream | None = None
        self.ended = 0

    def __call__(self, _: Request) -> Response:
        response = Response(200, b"hello\n", "text/event-stream")
        response.stream = self._begin
        return response

    def _begin(self, stream: ResponseStream) -> None:
        self.stream = stream
        stream.on_close(self._end)

    def _end(self) -> None:
        self.ended += 1


def test_a_stream_goes_on_until_the_client_is_gone() -> None:
    clock = ManualClock()
    listener = Listener()
    wire = Wire(listener, clock=clock)
    wire.send(GET % b"" + GET % b"ignored")
    assert listener.stream is not None
    assert listener.stream.write(b"more\n")
    clock.advance(100_000)
    wire.edge.sweep()
    head, _, body = wire.sent.partition(b"\r\n\r\n")
    assert body == b"hello\nmore\n"
    assert b"Content-Length" not in head
    wire.hang_up()
    assert listener.ended == 1
    assert not listener.stream.write(b"late")


def test_a_stream_drops_what_the_client_does_not_take() -> None:
    clock = ManualClock()
    listener = Listener()
    wire = Wire(listener, clock=clock, room=1000, write_timeout_ms=1000)
    wire.send(GET % b"")
    assert listener.stream is not None
    assert listener.stream.write(b"a" * 1000)
    assert not listener.stream.write(b"b")
    assert listener.stream.is_paused
    wire.transport.take(wire.transport.unsent_bytes)
    assert listener.stream.write(b"a" * 1001)
    clock.advance(1)
    wire.edge.sweep()
    assert wire.transport.is_aborted


def test_draining_ends_a_stream() -> None:
    wire = Wire(Listener())
    wire.send(GET % b"")
    wire.edge.drain()
    assert wire.transport.is_closed


def test_a_stream_ends_with_what_writes_it(loop: asyncio.AbstractEventLoop) -> None:
    async def write(stream: ResponseStream) -> None:
        stream.write(b"one")

    def answer(_: Request) -> Response:
        response = Response(200, b"", "text/plain")
        response.stream = write
        return response

    async def ask() -> Wire:
        wire = Wire(answer, loop=loop)
        wire.send(GET % b"")
        return wire

    wire = loop.run_until_complete(ask())
    turn(loop)
    turn(loop)
    assert wire.sent.endswith(b"\r\n\r\none")
    assert wire.transport.is_closed


# How bytes arrive does not matter.

bodies = st.binary(max_size=40)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from([b"GET", b"POST", b"HEAD", b"PUT", b"DELETE"]))
    path = draw(st.sampled_from([b"/", b"/a", b"/v1/topics/orders/messages?key=k", b"http://x/b"]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0"]))
    head = [b"%b %b HTTP/%b" % (method, path, version), b"Host: x"]
    if draw(st.integers(0, 4)) == 0:
        head.append(
            draw(st.sampled_from([b"Connection: close", b"Connection: keep-alive", b"Host: y", b"X: "]))
        )
    body = draw(bodies)
    if draw(st.booleans()):
        head.append(b"Content-Length: %d" % len(body))
    elif version == b"1.1":
        head.append(b"Transfer-Encoding: chunked")
        pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        body = b""
    return b"\r\n".join(head) + b"\r\n\r\n" + body


conversations = st.builds(
    lambda parts, rest: b"".join(parts) + rest, st.lists(requests(), max_size=4), st.binary(max_size=20)
)


@given(conversations, st.lists(st.integers(0, 400)))
def test_any_split_of_the_bytes_gives_the_same_answers(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    parts = [data[start:end] for start, end in pairwise(places)]
    assert Wire(told_back).send(*parts) == Wire(told_back).send(data)


@given(st.lists(st.one_of(requests(), st.binary(max_size=60)), max_size=6))
def test_whatever_a_client_sends_its_connection_ends(parts: list[bytes]) -> None:
    clock = ManualClock()
    wire = Wire(told_back, clock=clock, head_bytes_max=1024, body_bytes_max=64)
    wire.send(*parts)
    for _ in range(2):
        clock.advance(1000)
        wire.edge.sweep()
    assert wire.transport.is_over
