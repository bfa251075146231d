"""Receives that were taken back: their client is not there for the answer any more.

The one that takes a receive back may overtake it, because they come on two connections. So its token is
remembered, and nothing is handed out with it from then on.
"""

import threading
from typing import Annotated

from msgspec import Meta

from quivermq.engine import Queue
from quivermq.server.broker import Broker

Token = Annotated[str, Meta(pattern="^(0|[1-9a-f][0-9a-f]{0,15})$")]

# A receive that is overtaken by as many others finds its token forgotten, and its leases run out.
_WITHDRAWN_MAX = 10_000


class Withdrawn:
    """The tokens of the last ones, by topic, or pattern, and group. Thread-safe."""

    def __init__(self, _: Broker) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[tuple[str, str, int], None] = {}

    def has(self, queue: Queue, token: int | None) -> bool:
        """Whether nothing is to be handed out with this token."""
        return token is not None and (queue.topic, queue.group, token) in self._tokens

    def take_back(self, queue: Queue, token: int) -> None:
        """Hand nothing out with a token any more, and give back what was. Raises what keeps it from it."""
        # In this order: whatever is leased behind the search sees that it was taken back.
        with self._lock:
            self._tokens[queue.topic, queue.group, token] = None
            while len(self._tokens) > _WITHDRAWN_MAX:
                del self._tokens[next(iter(self._tokens))]
        queue.release_taken(token)
