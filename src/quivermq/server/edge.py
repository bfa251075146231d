"""What all connections share: limits, the time, who is there. One timer looks after all of them."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Protocol

from quivermq.clock import Clock
from quivermq.server.access import ApiKey
from quivermq.server.http import Request, Response, date_line
from quivermq.server.memory import HANDSHAKE_BYTES, Memory
from quivermq.server.routing import Answer
from quivermq.settings import ServerSettings

access_log = logging.getLogger("quivermq.server.access")

# How often connections are looked at: no timeout is more exact than this.
_SWEEP_S_MAX = 0.5
_SWEEP_S_MIN = 0.01

# So many connections beyond the limit are told so; further ones are cut off without a word.
_REFUSED_MAX = 100

# Of the memory for all clients, this part of the whole may go to TLS handshakes.
_HANDSHAKES_PART = 4

# How long a connection stays open to read what the client was still sending when it was refused. Closing
# at once would reset it, and the client would see a broken connection in place of the answer.
_LINGER_S = 3.0


class EdgeClient(Protocol):
    """A connection as the edge sees it."""

    deadline: float
    """When it has to be looked at, in monotonic seconds."""

    def expire(self) -> None:
        """Do what has to be done now that the deadline has passed."""
        ...

    def look(self) -> None:
        """Count what waits to be sent, of which nobody is told while it is little."""
        ...

    def drain(self) -> None:
        """Close, now or after the answers that are due."""
        ...

    def abort(self) -> None:
        """Close, whatever is going on."""
        ...

    def send_away(self, is_welcome: Callable[[ApiKey | None], bool]) -> None:
        """End an answer without an end, unless its client may stay."""
        ...

    def give_up(self) -> None:
        """Let go of what it makes the broker hold: somebody else needs the room."""
        ...


class Edge:
    """The connections and what they need to know. Belongs to the event loop's thread."""

    def __init__(
        self,
        answer: Callable[[Request], Answer],
        settings: ServerSettings,
        clock: Clock,
        admit: Callable[[Request], Response | None] | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.answer = answer
        self.admit = admit
        self._clock = clock
        self.settings = settings
        self.clients: set[EdgeClient] = set()
        self.memory = memory or Memory(settings.memory_bytes_max)
        self.handshakes = 0
        self._emptied = asyncio.Event()
        self.is_draining = False
        self.is_logging = False
        # Different in each process, so that an id is found in the log of one of them only.
        self._id_prefix = secrets.token_hex(4)
        self._ids = count(1)
        self.sweep()

    @property
    def sweep_interval_s(self) -> float:
        """How often `sweep` should be called."""
        settings = self.settings
        shortest_ms = min(settings.read_timeout_ms, settings.idle_timeout_ms, settings.write_timeout_ms)
        return min(max(shortest_ms / 4000, _SWEEP_S_MIN), _SWEEP_S_MAX)

    def sweep(self) -> None:
        """Take the time, and look at every connection whose deadline has passed.

        Connections read the time from here, because asking the system for it costs more.
        """
        settings, now = self.settings, self._clock.monotonic()
        self.now = now
        self.read_deadline = now + settings.read_timeout_ms / 1000
        self.idle_deadline = now + settings.idle_timeout_ms / 1000
        self.write_deadline = now + settings.write_timeout_ms / 1000
        self.linger_deadline = now + _LINGER_S
        self.date = date_line(self._clock.now_us() / 1_000_000)
        self.is_logging = access_log.isEnabledFor(logging.DEBUG)
        for client in [client for client in self.clients if client.deadline <= now]:
            client.expire()
        for client in self.clients:
            client.look()
        self.make_room()

    def has_room(self) -> bool:
        """Whether one more connection may be served."""
        return len(self.clients) < self.settings.connections_max

    def has_room_for_handshake(self) -> bool:
        """Whether one more may begin: they need no key, so they get a part of the memory only."""
        handshakes_max = max(1, self.memory.bytes_max // _HANDSHAKES_PART // HANDSHAKE_BYTES)
        return self.has_room() and not self.is_draining and self.handshakes < handshakes_max

    def has_room_to_refuse(self) -> bool:
        """Whether one more connection may be told that it is not served."""
        return len(self.clients) < self.settings.connections_max + _REFUSED_MAX

    def make_room(self, count: int = 0, *, at_any_cost: bool = False) -> bool:
        """Whether so many bytes more may be held, after those who stand still were sent away for it."""
        memory = self.memory
        if memory.held_bytes + count <= memory.bytes_max:
            return True
        return memory.make_room(self._clock.monotonic(), count, at_any_cost=at_any_cost)

    def leave(self, client: EdgeClient) -> None:
        """Forget a connection that is gone."""
        self.clients.discard(client)
        self.memory.hold(client, 0, self.now)
        if not self.clients:
            self._emptied.set()

    async def emptied(self, timeout_s: float) -> bool:
        """Wait until every connection is gone. False when that took too long."""
        if self.clients:
            self._emptied.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), timeout_s)
        return not self.clients

    def new_id(self) -> str:
        """A request id that this process has not used yet."""
        return f"{self._id_prefix}-{next(self._ids):x}"

    def send_away(self, is_welcome: Callable[[ApiKey | None], bool]) -> None:
        """End what goes to clients without an end, where the key they came with is no longer good."""
        for client in list(self.clients):
            client.send_away(is_welcome)

    def drain(self) -> None:
        """Let every connection go as soon as its answers are sent."""
        self.is_draining = True
        for client in list(self.clients):
            client.drain()

    def abort(self) -> None:
        """Cut off every connection."""
        for client in list(self.clients):
            client.abort()
