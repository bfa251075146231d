"""The one thread of a connection that renews leases while handlers are at work."""

import logging
import threading
from typing import TYPE_CHECKING

from quivermq.client.core.holding import Holding
from quivermq.clock import Clock
from quivermq.delivery.delivery import Delivery
from quivermq.errors import QuiverError

if TYPE_CHECKING:
    from quivermq.client.blocking.queue import RemoteQueue

logger = logging.getLogger(__name__)


class Renewer:
    """Extends leases after a third of their time, those of one queue together. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._holding: Holding[tuple[RemoteQueue, Delivery]] = Holding()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def hold(self, queue: "RemoteQueue", delivery: Delivery, lease_s: float) -> None:
        """Keep the lease of a delivery until `release`."""
        with self._condition:
            before = self._holding.next_due
            self._holding.hold(id(delivery), (queue, delivery), lease_s, self._clock.monotonic())
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="quiver-renewal", daemon=True)
                self._thread.start()
            elif before is None or self._holding.next_due != before:
                self._condition.notify()

    def release(self, delivery: Delivery) -> None:
        """Let the lease run out when it does."""
        with self._condition:
            self._holding.release(id(delivery))

    def close(self) -> None:
        """Renew nothing any more. Returns once the thread has ended."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            for lease_s, held in due.items():
                for queue in {queue for queue, _ in held}:
                    self._extend(queue, [delivery for other, delivery in held if other is queue], lease_s)

    def _wait(self) -> dict[float, list[tuple["RemoteQueue", Delivery]]] | None:
        with self._condition:
            while not self._is_closed:
                now = self._clock.monotonic()
                if due := self._holding.take_due(now):
                    return due
                next_due = self._holding.next_due
                self._condition.wait(
                    None if next_due is None else min(next_due - now, threading.TIMEOUT_MAX)
                )
        return None

    def _extend(self, queue: "RemoteQueue", deliveries: list[Delivery], lease_s: float) -> None:
        try:
            queue.extend([delivery for delivery in deliveries if not delivery.is_settled], lease_s)
        except QuiverError as error:
            # The handlers learn of it when they settle their messages.
            logger.warning("could not renew the leases of %d messages: %s", len(deliveries), error)
