"""Renewing the leases of messages whose handlers are still at work."""

import logging
import threading
from functools import partial

from quivermq.clock import Clock
from quivermq.delivery.delivery import Delivery
from quivermq.errors import QuiverError
from quivermq.log.flusher import Scheduler

logger = logging.getLogger(__name__)


class Renewer:
    """Extends leases after a third of their time. One timer for all; a message costs a dict entry."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._held: dict[int, tuple[Delivery, float, float]] = {}
        self._next_look: float | None = None

    def hold(self, delivery: Delivery, lease_s: float) -> None:
        """Keep the lease of a delivery until `release`."""
        now = self._clock.monotonic()
        with self._lock:
            self._held[id(delivery)] = (delivery, lease_s, now + lease_s / 3)
            if self._next_look is None or now + lease_s / 3 < self._next_look:
                self._look_after(now, lease_s / 3)

    def release(self, delivery: Delivery) -> None:
        """Let the lease run out when it does."""
        with self._lock:
            self._held.pop(id(delivery), None)

    def _look_after(self, now: float, wait_s: float) -> None:
        self._next_look = now + wait_s
        self._scheduler.schedule(wait_s, partial(self._renew, self._next_look))

    def _renew(self, planned: float) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if self._next_look != planned:
                # Somebody with a shorter lease came, and an earlier look was planned instead.
                return
            due = [held for held in self._held.values() if held[2] <= now]
        for delivery, lease_s, _ in due:
            self._extend(delivery, lease_s)
        with self._lock:
            for delivery, lease_s, _ in due:
                if id(delivery) in self._held:
                    self._held[id(delivery)] = (delivery, lease_s, now + lease_s / 3)
            self._next_look = None
            if self._held:
                nearest = min(held[2] for held in self._held.values())
                self._look_after(now, max(0.001, nearest - now))

    def _extend(self, delivery: Delivery, lease_s: float) -> None:
        try:
            delivery.extend(lease_s)
        except QuiverError as error:
            # The handler learns of it when it settles the message.
            logger.warning("could not renew the lease of %r: %s", delivery, error)
            self.release(delivery)
