"""A server that says what the test wants, on a real socket: for what no broker would do."""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

Talk = Callable[["Guest"], None]


class Guest:
    """One connection, seen from the server."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def request(self) -> bytes:
        """The next request, of which the head says how long it is."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = self.connection.recv(65536)
            if not more:
                return data
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
        while lengths and len(body) < lengths[0]:
            body += self.connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def say(self, data: bytes) -> None:
        self.connection.sendall(data)

    def ok(self, body: bytes = b"{}") -> None:
        self.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


class FakeServer:
    """Serves connections one after the other, each with its own talk; then no more."""

    def __init__(self, *talks: Talk, tls: ssl.SSLContext | None = None) -> None:
        self._talks = talks
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://localhost:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._open: list[socket.socket] = []

    def _serve(self) -> None:
        for talk in self._talks:
            with suppress(OSError):
                connection, _ = self._listener.accept()
                self._open.append(connection)
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                    self._open.append(connection)
                talk(Guest(connection))
            if self._open:
                self._open[-1].close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
