"""What is handed on to another broker arrives there whole, and so does its answer here."""

import asyncio

from quivermq.server.http import Request, Response
from quivermq.server.shards.forwarding import Forwarder

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 2\r\n"
    b"Quiver-Next: 7\r\nQuiver-Request-Id: there\r\nX-Elsewhere: 1\r\n\r\nok"
)


def handed_on(request: Request) -> tuple[list[str], bytes, Response]:
    """The head and the body as the other broker gets them, and the answer."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n"))
        got.append(await reader.readexactly(len(request.body)))
        writer.write(ANSWER)
        await writer.drain()
        await reader.read()
        writer.close()

    async def exchanged() -> Response:
        forwarder = Forwarder(1)
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            response = await forwarder.forward(f"http://127.0.0.1:{port}", "/shards/1/there", request)
            await forwarder.close()
        return response

    response = asyncio.run(exchanged())
    return got[0].decode("latin-1").split("\r\n"), got[1], response


def test_the_headers_of_a_message_go_with_it() -> None:
    headers = {"quiver-header-trace": "b\xe9", "quiver-request-id": "?", "x-other": "1", "host": "here"}
    request = Request("POST", "/v1/there", "key=a%20b", headers, b"hello", id="r1")
    head, body, _ = handed_on(request)
    assert head[0] == "POST /shards/1/there?key=a+b HTTP/1.1"
    assert body == b"hello"
    assert "quiver-header-trace: b\xe9" in head
    # By the same id it is found in the logs of both.
    assert [line for line in head if line.startswith("quiver-request-id")] == ["quiver-request-id: r1"]
    assert not any(line.startswith(("x-other", "host: here")) for line in head)


def test_the_places_of_frames_come_back() -> None:
    _, _, response = handed_on(Request("GET", "/v1/there", id="r1"))
    assert (response.status, response.body) == (200, b"ok")
    assert response.headers == {"Quiver-Next": "7"}
