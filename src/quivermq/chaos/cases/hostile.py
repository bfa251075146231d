"""Clients that send nonsense, too much, or too slowly: a clear 4xx, nothing stored, the broker lives."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from random import Random

from quivermq.chaos import PATIENCE_S, expect
from quivermq.chaos.http_clients import ask_once
from quivermq.chaos.processes import BrokerProcess
from quivermq.chaos.trial import Trial
from quivermq.frame import encode
from quivermq.model.json import FRAME
from quivermq.server.keys import create_key

_BODY_BYTES_MAX = 64 * 1024
_PUBLISH = "/v1/topics/orders/messages"

# Whole requests, byte by byte as they go out.
_MALFORMED = [
    b"\r\n\r\n\r\n",
    b"\0\1\2\3\4\5\6\7",
    b"GET\r\n\r\n",
    b"GET /v1/topics\r\n\r\n",
    b"GET /v1/topics HTTP/9.9\r\nHost: x\r\n\r\n",
    b"get /v1/topics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/top ics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/topics HTTP/1.1\r\nHost x\r\n\r\n",
    b"GET /v1/topics HTTP/1.1\r\nHost: x\r\nA\0B: c\r\n\r\n",
    b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 40_000 + b"\r\n\r\n",
    *(
        b"POST %b HTTP/1.1\r\nHost: x\r\n%b" % (_PUBLISH.encode(), rest)
        for rest in (
            b"Content-Length: -1\r\n\r\nx",
            b"Content-Length: x\r\n\r\nx",
            b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
            b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
            b"Transfer-Encoding: gzip\r\n\r\nx",
        )
    ),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
# Names that would lead out of the directory, or be something else in it.
_NAMES = [
    *("..", ".", "...", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e", "a/b", "a%00b", "a%0ab"),
    *("%ff%fe", "a" * 250, "a b", "%c3%a4", "*", "a.*", "%5c..%5c"),
]
_BODIES = [
    *(b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b'{"value":1}', b'{"value":"x","nonsense":1}'),
    *(b'{"value":"x","value_base64":"eA=="}', b'{"value_base64":"?"}', b'{"messages":{}}'),
    *(b'{"messages":[1]}', b'{"value":"\xff"}', b'{"value":"\\ud800"}', b'{"value":"x","ttl_ms":-1}'),
    *(b'{"value":"x","ttl_ms":1e400}', b'{"value":"x","delay_ms":"soon"}', b'{"value":"x","partition":99}'),
    *(b'{"value":"x","priority":"urgent"}', b'{"value":"x","headers":[]}'),
    *(b'{"value":"x","headers":{"quiver-x":1}}', b"[" * 50_000),
]
_QUERIES = ("offset=-1", "offset=x", "limit=0x", "limit=99999999999999999999", "priority=urgent", "x=1")


def wrong_requests(trial: Trial) -> None:
    """Everything above, once, and as much nonsense by chance as there are cycles."""
    settings = {"server__body_bytes_max": _BODY_BYTES_MAX, "server__read_timeout_ms": 1000}
    with trial.broker(**settings) as process:
        process.client().publish("orders", "the only one")
        for request in (*_MALFORMED, *(_noise(trial.rng) for _ in range(trial.cycles))):
            _check_malformed(process, request)
            trial.tried += 1
        for method, path, body, kind in (*_wrong_calls(), *_wrong_frames(trial.rng)):
            _check_call(process, method, path, body, kind)
            trial.tried += 1
        _check_oversized(process)
        _check_slow(process)
        _check_untouched(process)
        trial.tried += 2


def _check_malformed(process: BrokerProcess, request: bytes) -> None:
    """No request at all: it is refused, or the connection ends, and nothing else happens."""
    status = _sent(process.port, request, is_all=True)
    expect(
        status is None or (400 <= status < 600 and status != 500), f"{request[:80]!r} was answered {status}"
    )
    _check_alive(process)


def _check_call(process: BrokerProcess, method: str, path: str, body: bytes, kind: str) -> None:
    """A request that cannot be right: a clear 4xx, in JSON."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    status = _sent(process.port, request)
    expect(
        status is not None and 400 <= status < 500, f"{method} {path} {body[:60]!r} was answered {status}"
    )


def _check_oversized(process: BrokerProcess) -> None:
    """A body that is too large is refused before it is read."""
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n" % _PUBLISH.encode()
    expect(_sent(process.port, head + b"Content-Length: 1000000000000\r\n\r\n") == 413, "not refused")
    chunks = b"Transfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n" + b"ffff\r\n"
    expect(_sent(process.port, head + chunks + b"x" * 0xFFFF) == 413, "a chunked one was not refused")
    _check_alive(process)


def _check_slow(process: BrokerProcess) -> None:
    """Somebody who does not get on with the request is cut off, and keeps nobody else waiting."""
    with closing(socket.create_connection(("127.0.0.1", process.port), PATIENCE_S)) as slow:
        slow.sendall(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nslow" % _PUBLISH.encode())
        _check_alive(process)
        answer = slow.recv(4096)
    expect(
        answer == b"" or answer.startswith(b"HTTP/1.1 408"), f"a slow client was answered {answer[:80]!r}"
    )


def _check_untouched(process: BrokerProcess) -> None:
    client = process.client()
    topics = [topic["name"] for topic in client.call("GET", "/v1/topics").document["topics"]]
    expect(topics == ["orders"], f"topics were made: {topics}")
    expect(client.values("orders") == ["the only one"], "something was stored")


def _check_alive(process: BrokerProcess) -> None:
    expect(ask_once(process.port, "GET", "/healthz").status == 200, "the broker is not well")


def wrong_keys(trial: Trial) -> None:
    """A broker with keys lets nobody in who has none, and nobody do what the key is not for."""
    right = create_key(trial.data, "read", ["orders"]).text
    other = create_key(trial.directory / "other", "admin").text
    with trial.broker() as process:
        client = process.client()
        flipped = right[:-1] + ("0" if right[-1] != "0" else "1")
        for key in ("", "x", other, flipped, right[:-1], right + "0", right.upper(), "qk_" + "0" * 200):
            for scheme in ("Bearer", "Basic", "bearer bearer"):
                answer = client.call("GET", "/v1/topics", headers={"Authorization": f"{scheme} {key}"})
                expect(answer.status == 401, f"{scheme} {key[:20]} was answered {answer.status}")
                trial.tried += 1
        headers = {"Authorization": f"Bearer {right}"}
        answer = client.call("POST", _PUBLISH, {"value": "x"}, headers=headers)
        expect(answer.status == 403, f"a key for reading published: {answer}")
        answer = client.call("POST", "/v1/topics/other/groups/g/receive", {}, headers=headers)
        expect(answer.status == 403, f"a key for orders received from another topic: {answer}")
        trial.tried += 2


def _wrong_calls() -> Iterator[tuple[str, str, bytes, str]]:
    for name in _NAMES:
        yield "POST", f"/v1/topics/{name}/messages", b'{"value":"x"}', "application/json"
        yield "GET", f"/v1/topics/{name}/partitions/0/messages", b"", "application/json"
        yield "POST", f"/v1/topics/orders/groups/{name}/ack", b'{"receipts":["x"]}', "application/json"
        yield "POST", "/v1/topics", json.dumps({"name": name}).encode(), "application/json"
    for body in _BODIES:
        yield "POST", _PUBLISH, body, "application/json"
    for query in _QUERIES:
        yield "GET", f"/v1/topics/orders/partitions/0/messages?{query}", b"", "application/json"
    yield "DELETE", "/v1/topics", b"", "application/json"
    yield "GET", "/nowhere", b"", "application/json"


def _wrong_frames(rng: Random) -> Iterator[tuple[str, str, bytes, str]]:
    """Frames with a bit flipped anywhere, cut anywhere, or doubled."""
    frame = bytes(encode([b"a", b"b"], keys=[b"k", None], timestamp=1))
    for position in range(0, len(frame), 3):
        broken = bytearray(frame)
        broken[position] ^= 1 << rng.randrange(8)
        yield "POST", _PUBLISH, bytes(broken), FRAME
    for size in (0, 1, 79, 80, len(frame) - 1):
        yield "POST", _PUBLISH, frame[:size], FRAME
    yield "POST", _PUBLISH, frame * 2, FRAME


def _noise(rng: Random) -> bytes:
    """A request that was right before some bytes of it were changed, and its end perhaps cut off."""
    body = b'{"value":"noise"}'
    request = b"POST /v1/nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    noisy = bytearray(request[: rng.randint(1, len(request))])
    for _ in range(rng.randint(1, 4)):
        noisy[rng.randrange(len(noisy))] = rng.randrange(256)
    return bytes(noisy)


def _sent(port: int, request: bytes, *, is_all: bool = False) -> int | None:
    """The status of the answer to some bytes; None when the connection just ended.

    With `is_all` nothing more will come, and the broker can tell.
    """
    with closing(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) as connection:
        try:
            # A broker answers only to its own name.
            connection.sendall(request.replace(b"Host: x\r", b"Host: 127.0.0.1:%d\r" % port))
            if is_all:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            # It did not want to hear the rest, and may have said why.
            pass
        try:
            answer = connection.recv(65536)
        except OSError:
            return None
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None
