"""Connections to the broker, kept and used again. The only place where this shell touches a socket."""

import os
import socket
import threading
from select import select
from typing import TYPE_CHECKING

from quivermq.client.core.address import Address
from quivermq.client.core.call import Answer, Broken, Call, reason_of
from quivermq.client.core.http import BadResponse, ResponseParser, request_bytes
from quivermq.errors import Closing

if TYPE_CHECKING:
    from ssl import SSLContext

_READ_BYTES = 64 * 1024
_READ_BYTES_MAX = 1024 * 1024
_IDLE_MAX = 16


class Pool:
    """Exchanges a call for its outcome, on a connection of its own for as long as that takes."""

    def __init__(
        self, address: Address, common: str, timeout_s: float, ssl_context: "SSLContext | None"
    ) -> None:
        self._address = address
        self._common = common
        self._timeout_s = timeout_s
        self._ssl_context = ssl_context if address.is_secure else None
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._busy: set[socket.socket] = set()
        # Those of the busy ones on which the broker may take its time.
        self._waiting: set[socket.socket] = set()
        self._pid = os.getpid()
        self._is_closed = False
        self._is_interrupted = False

    def exchange(self, call: Call) -> Answer | Broken:
        """Send a call and wait for what comes of it. Raises Closing once the pool is closed."""
        try:
            connection = self._take()
        except OSError as error:
            return Broken(f"{self._address}: {reason_of(error)}", was_sent=False)
        outcome: Answer | Broken | None = None
        try:
            connection.settimeout(self._timeout_s + call.wait_s)
            if call.wait_s:
                self._waiting.add(connection)
                self.check_open()
            outcome = self._exchange_on(connection, call)
        finally:
            self._waiting.discard(connection)
            self._give_back(connection, isinstance(outcome, Answer) and outcome.keeps_alive)
        if isinstance(outcome, Broken):
            self.check_open()
        return outcome

    def _exchange_on(self, connection: socket.socket, call: Call) -> Answer | Broken:
        parser = ResponseParser(is_head=call.method == "HEAD")
        broken: OSError | None = None
        try:
            connection.sendall(request_bytes(call, self._common, self._address.prefix))
        except TimeoutError as error:
            return Broken(f"{self._address}: {reason_of(error)}", was_sent=True)
        except OSError as error:
            # A broker that refuses a body does not read it to the end, and may have said why.
            broken = error
        try:
            answer = None
            while answer is None:
                data = connection.recv(min(max(_READ_BYTES, parser.wanted_bytes), _READ_BYTES_MAX))
                if not data and not parser.has_begun:
                    reason = "the connection was closed" if broken is None else reason_of(broken)
                    return Broken(f"{self._address}: {reason}", was_sent=True)
                answer = parser.feed(data) if data else parser.end()
        except (OSError, BadResponse) as error:
            return Broken(f"{self._address}: {reason_of(broken or error)}", was_sent=True)
        return answer

    def _take(self) -> socket.socket:
        with self._lock:
            self.check_open()
            if self._pid != os.getpid():
                # After a fork the connections are the parent's: two would talk at the same time.
                self._idle, self._busy, self._pid = [], set(), os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if _is_fresh(connection):
                    self._busy.add(connection)
                    return connection
                connection.close()
        connection = self._connected()
        with self._lock:
            self._busy.add(connection)
            is_late = self._is_closed
        if is_late:
            self._give_back(connection, keep=False)
            self.check_open()
        return connection

    def _connected(self) -> socket.socket:
        address = self._address
        connection = socket.create_connection((address.host, address.port), timeout=self._timeout_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._ssl_context is None:
                return connection
            return self._ssl_context.wrap_socket(connection, server_hostname=address.host)
        except BaseException:
            connection.close()
            raise

    def _give_back(self, connection: socket.socket, keep: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if keep and not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def check_open(self) -> None:
        """Raise Closing once the pool was closed."""
        if self._is_closed or self._is_interrupted:
            raise Closing(f"the connection to {self._address} was closed: connect again")

    def interrupt(self) -> None:
        """Begin no call any more, and wait for no message; what is on its way may come to its end.

        Takes no lock, so a signal handler may call this at any moment.
        """
        self._is_interrupted = True
        _shut_down(list(self._waiting))

    def resume(self) -> None:
        """Let calls be made again: those that are left to make before it is closed."""
        self._is_interrupted = False

    def close(self) -> None:
        """Close every connection, also those on which somebody waits; who waits gets Closing."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        _shut_down(busy)


def _shut_down(connections: list[socket.socket]) -> None:
    for connection in connections:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It is closed already, which is what was wanted.
            continue


def _is_fresh(connection: socket.socket) -> bool:
    """Whether nothing came on an idle connection: what comes there is its end."""
    readable, _, _ = select([connection], [], [], 0)
    return not readable
