"""The other end of a connection, without a socket: what a protocol does to its transport."""

import asyncio
import re
from collections.abc import Iterable
from typing import Any, cast

from quivermq.clock import Clock
from quivermq.server.connection import ClientConnection
from quivermq.server.edge import Edge
from quivermq.server.http import Request
from quivermq.server.routing import Answer
from quivermq.settings import ServerSettings
from support.manual_clock import ManualClock

# For wires whose answers are there at once.
_UNUSED_LOOP = cast(asyncio.AbstractEventLoop, None)

_OWN_ID = re.compile(rb"Quiver-Request-Id: [0-9a-f]{8}-[0-9a-f]+\r\n")


class FakeTransport(asyncio.Transport):
    """Keeps what is written, and says what was done to it. Takes `room` bytes before it is full."""

    def __init__(self, *, room: int = 1 << 30) -> None:
        super().__init__()
        self.sent = b""
        self.writes = 0
        self.room = room
        self.unsent_bytes = 0
        self.is_reading_paused = False
        self.is_closed = False
        self.is_aborted = False
        self.has_eof = False
        self.protocol: ClientConnection | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else default

    def write(self, data: Any) -> None:
        is_ended = self.is_over or self.has_eof
        assert not is_ended, "written after the end"
        self.sent += bytes(data)
        self.writes += 1
        self.unsent_bytes += len(data)
        if self.unsent_bytes > self.room and self.protocol is not None:
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def take(self, count: int) -> None:
        """The client takes some of what was sent to it."""
        was_full = self.unsent_bytes > self.room
        self.unsent_bytes -= count
        if was_full and self.unsent_bytes <= self.room and self.protocol is not None:
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        assert not self.is_reading_paused
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        assert self.is_reading_paused
        self.is_reading_paused = False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_eof = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    @property
    def is_over(self) -> bool:
        return self.is_closed or self.is_aborted


class Wire:
    """A connection whose client is the test."""

    def __init__(
        self,
        answer: Any,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Clock | None = None,
        edge: Edge | None = None,
        room: int = 1 << 30,
        **settings: Any,
    ) -> None:
        self.requests: list[Request] = []
        self.clock = clock or ManualClock()
        self._answer = answer
        self.edge = edge or Edge(self._answered, ServerSettings(**settings), self.clock)
        self.transport = FakeTransport(room=room)
        self.connection = ClientConnection(self.edge, loop or _UNUSED_LOOP)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def _answered(self, request: Request) -> Answer:
        self.requests.append(request)
        answer: Answer = self._answer(request)
        return answer

    def send(self, *parts: bytes) -> bytes:
        """Send these one after the other, and return all that came back since the beginning."""
        for part in parts:
            self.connection.data_received(part)
        return self.sent

    @property
    def sent(self) -> bytes:
        """All answers, with one and the same id in place of those that differ from run to run."""
        return _OWN_ID.sub(b"Quiver-Request-Id: own\r\n", self.transport.sent)

    @property
    def statuses(self) -> list[int]:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", self.transport.sent)]

    def hang_up(self) -> None:
        self.connection.connection_lost(None)
