"""TLS: what the broker needs to speak it, and a client that has come and has yet to."""

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, cast

from quivermq.errors import InvalidRequest
from quivermq.server.access import ApiKey
from quivermq.server.connection import ClientConnection
from quivermq.server.edge import Edge
from quivermq.server.memory import HANDSHAKE_BYTES

# A client that is idle may never answer the goodbye of TLS.
_GOODBYE_S = 0.5


def tls_context(
    certificate: str | os.PathLike[str] | None, key: str | os.PathLike[str] | None
) -> ssl.SSLContext | None:
    """What a certificate chain and its private key, both as PEM files, give; None without them.

    The key may be in the file of the certificate. Raises InvalidRequest when that cannot be used.
    """
    if certificate is None:
        if key is not None:
            raise InvalidRequest("there is a TLS key without a certificate: give both")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A key with a password would otherwise ask for it at the terminal, which a service has not.
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        files = f"{certificate}" if key is None else f"{certificate} and {key}"
        raise InvalidRequest(f"{files} cannot be used for TLS: {error}") from error
    return context


def _no_password() -> str:
    raise ValueError("the key has a password: store it without one, readable by the broker only")


class Handshake(asyncio.Protocol):
    """From the first byte to the end of the handshake, after which a `ClientConnection` takes over.

    The event loop could do this by itself, but then nobody would know of clients that never finish.
    """

    __slots__ = ("_early", "_edge", "_is_over", "_loop", "_tls", "_transport", "deadline")

    _transport: asyncio.Transport

    def __init__(self, edge: Edge, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext) -> None:
        self._edge = edge
        self._loop = loop
        self._tls = tls
        self._early: list[bytes] = []
        self._is_over = False
        self.deadline = edge.read_deadline

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Nothing can be told to a client before the handshake, so one too many is cut off.
        self._transport = cast(asyncio.Transport, transport)
        edge = self._edge
        if not (edge.has_room_for_handshake() and edge.make_room(HANDSHAKE_BYTES)):
            self._is_over = True
            self._transport.abort()
            return
        edge.clients.add(self)
        edge.handshakes += 1
        edge.memory.hold(self, HANDSHAKE_BYTES, edge.now)
        self._begin()

    def data_received(self, data: bytes) -> None:
        # It may send its first request together with the end of its handshake.
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - It may go as it likes.
        self._leave()

    # What the edge calls.

    def expire(self) -> None:
        """It took too long."""
        self.abort()

    def look(self) -> None:
        """It counts as a whole."""

    def drain(self) -> None:
        """It has not asked for anything yet."""
        self.abort()

    def give_up(self) -> None:
        """Somebody else needs the room."""
        self.abort()

    def abort(self) -> None:
        self._leave()
        self._transport.abort()

    def send_away(self, _: Callable[[ApiKey | None], bool]) -> None:
        """Nobody knows yet who it is."""

    def _begin(self) -> None:
        """Begin now: a task would begin with the next turn of the loop, and miss what the client sends."""
        shaking = self._loop.start_tls(
            self._transport,
            self,
            self._tls,
            server_side=True,
            ssl_handshake_timeout=self._edge.settings.read_timeout_ms / 1000,
            ssl_shutdown_timeout=_GOODBYE_S,
        )
        waiting = shaking.send(None)
        waiting._asyncio_future_blocking = False
        waiting.add_done_callback(lambda _: self._finish(shaking))

    def _finish(self, shaking: Coroutine[Any, Any, asyncio.Transport | None]) -> None:
        try:
            shaking.send(None)
        except StopIteration as end:
            transport = end.value
        except (OSError, asyncio.CancelledError):
            # What it sent is no TLS, or it was too slow, or it has gone.
            transport = None
        if self._is_over or transport is None:
            self.abort()
            return
        self._leave()
        connection = ClientConnection(self._edge, self._loop, below=self._transport)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        for data in self._early:
            connection.data_received(data)

    def _leave(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._edge.handshakes -= 1
            self._edge.leave(self)
