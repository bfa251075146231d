"""Renewing the leases of messages whose handlers are still at work."""

import logging
import threading
from collections.abc import Iterable
from heapq import heappop, heappush

from quivermq.clock import Clock
from quivermq.delivery.delivery import release_quietly
from quivermq.engine.settling import Claims
from quivermq.errors import QuiverError
from quivermq.log.flusher import Scheduler
from quivermq.model.deliveries import Delivery

logger = logging.getLogger(__name__)


class LeaseRenewer:
    """Extends leases after a third of their time. One timer for all; a message costs a dict entry."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._held: dict[int, tuple[Delivery, float, float]] = {}
        # When looks are planned, the next one first.
        self._planned: list[float] = []

    def hold(self, delivery: Delivery, lease_s: float) -> None:
        """Keep the lease of a delivery until `release`."""
        now = self._clock.monotonic()
        with self._lock:
            self._held[id(delivery)] = (delivery, lease_s, now + lease_s / 3)
            self._plan(now, now + lease_s / 3)

    def release(self, delivery: Delivery) -> None:
        """Let the lease run out when it does."""
        with self._lock:
            self._held.pop(id(delivery), None)

    def release_all(self, deliveries: Iterable[Delivery]) -> None:
        """As `release`, for many."""
        with self._lock:
            for delivery in deliveries:
                self._held.pop(id(delivery), None)

    def give_back(self) -> None:
        """Release every message that is held: nobody can settle it any more."""
        with self._lock:
            held = [delivery for delivery, _, _ in self._held.values() if not delivery.is_settled]
            self._held.clear()
        release_quietly(_release, held)

    def _plan(self, now: float, look_at: float) -> None:
        """Look at that time, unless an earlier look is planned, which will plan the next one."""
        if not self._planned or self._planned[0] > look_at:
            heappush(self._planned, look_at)
            self._scheduler.schedule(max(0.001, look_at - now), self._renew)

    def _renew(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            while self._planned and self._planned[0] <= now:
                heappop(self._planned)
            due = [held for held in self._held.values() if held[2] <= now]
        for delivery, lease_s, _ in due:
            self._extend(delivery, lease_s)
        with self._lock:
            for delivery, lease_s, _ in due:
                if id(delivery) in self._held:
                    self._held[id(delivery)] = (delivery, lease_s, now + lease_s / 3)
            if self._held:
                self._plan(now, min(held[2] for held in self._held.values()))

    def _extend(self, delivery: Delivery, lease_s: float) -> None:
        try:
            delivery.extend(lease_s)
        except QuiverError as error:
            # The handler learns of it when it settles the message.
            logger.warning("could not renew the lease of %r: %s", delivery, error)
            self.release(delivery)


def _release(held: list[Delivery]) -> None:
    claims = Claims()
    for delivery in held:
        claims.add_delivery(delivery)
    # Not as settled: whoever is at one of them has not settled it, and is told so.
    claims.settle(lambda cursor, lane, claims: cursor.release(lane, claims, raises=False), is_final=False)
