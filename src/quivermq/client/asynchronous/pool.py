"""Connections to the broker, kept and used again: the asynchronous way to move bytes."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from quivermq.client.core.address import Address
from quivermq.client.core.call import Answer, Broken, Call, reason_of
from quivermq.client.core.http import BadResponse, ResponseParser, request_bytes
from quivermq.errors import Closing

if TYPE_CHECKING:
    from ssl import SSLContext

_READ_BYTES = 256 * 1024
_IDLE_MAX = 16


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class AsyncPool:
    """Exchanges a call for its outcome. Belongs to one event loop."""

    def __init__(
        self, address: Address, common: str, timeout_s: float, ssl_context: "SSLContext | None"
    ) -> None:
        self._address = address
        self._common = common
        self._timeout_s = timeout_s
        self._ssl_context = ssl_context if address.is_secure else None
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._is_closed = False

    async def exchange(self, call: Call) -> Answer | Broken:
        """Send a call and wait for what comes of it. Raises Closing once the pool is closed."""
        self.check_open()
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._take()
        except OSError as error:
            return Broken(f"{self._address}: {reason_of(error)}", was_sent=False)
        outcome: Answer | Broken | None = None
        self._busy.add(connection)
        try:
            async with asyncio.timeout(self._timeout_s + call.wait_s):
                outcome = await self._exchange_on(connection, call)
        except (OSError, BadResponse) as error:
            outcome = Broken(f"{self._address}: {reason_of(error)}", was_sent=True)
        finally:
            self._busy.discard(connection)
            self._give_back(connection, isinstance(outcome, Answer) and outcome.keeps_alive)
        if isinstance(outcome, Broken):
            self.check_open()
        return outcome

    async def _exchange_on(self, connection: _Connection, call: Call) -> Answer | Broken:
        parser = ResponseParser(is_head=call.method == "HEAD")
        connection.writer.write(request_bytes(call, self._common, self._address.prefix))
        # A broker that refuses a body does not read it to the end, and may have said why.
        with suppress(ConnectionError):
            await connection.writer.drain()
        answer = None
        while answer is None:
            data = await connection.reader.read(_READ_BYTES)
            if not data and not parser.has_begun:
                return Broken(f"{self._address}: the connection was closed", was_sent=True)
            answer = parser.feed(data) if data else parser.end()
        return answer

    async def _take(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.writer.close()
        address = self._address
        return _Connection(
            *await asyncio.open_connection(
                address.host,
                address.port,
                ssl=self._ssl_context,
                server_hostname=address.host if self._ssl_context else None,
            )
        )

    def _give_back(self, connection: _Connection, keep: bool) -> None:
        if keep and not self._is_closed and len(self._idle) < _IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.writer.close()

    def check_open(self) -> None:
        """Raise Closing once the pool was closed."""
        if self._is_closed:
            raise Closing(f"the connection to {self._address} was closed: connect again")

    async def close(self) -> None:
        """Close every connection; who waits on one gets Closing."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in [*idle, *self._busy]:
            connection.writer.close()
        for connection in idle:
            with suppress(OSError):
                await connection.writer.wait_closed()
