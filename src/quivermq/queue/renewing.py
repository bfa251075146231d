"""Renewing the leases of messages whose handlers are at work, and what else is due again and again."""

import logging
import threading
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from quivermq.model.deliveries import Delivery
from quivermq.queue.due import Periodic, Renewal, by_queue
from quivermq.reentry import entered

if TYPE_CHECKING:
    from quivermq.backend import Backend
    from quivermq.queue.queue import Queue

logger = logging.getLogger(__name__)

Act = Callable[[], None]
Due: TypeAlias = "Renewal[Queue, Delivery] | Act"


class Renewer:
    """Extends leases after a third of their time, those of one queue together. Thread-safe.

    One timer for all: a message whose handler is quick costs a dict entry.
    """

    def __init__(self, backend: "Backend") -> None:
        self._clock = backend.clock
        self._scheduler = backend.scheduler
        self._lock = threading.Lock()
        self._periodic: Periodic[Due] = Periodic()
        # When looks are planned, the next one first.
        self._planned: list[float] = []

    def hold(self, queue: "Queue", delivery: Delivery, lease_s: float) -> None:
        """Keep the lease of a delivery until `release`."""
        self.renew(delivery, Renewal(queue, lease_s, lambda: [delivery]))

    def renew(self, name: Hashable, renewal: "Renewal[Queue, Delivery]") -> None:
        """Keep whatever it finds, until `release`."""
        self._add(name, renewal, renewal.period_s)

    def repeat(self, name: Hashable, act: Act, period_s: float) -> None:
        """Call it again and again, until `release`. It may raise nothing."""
        self._add(name, act, period_s)

    @entered
    def _add(self, name: Hashable, item: Due, period_s: float) -> None:
        with self._lock:
            now = self._clock.monotonic()
            self._periodic.add(name, item, period_s, now)
            self._plan(now, now + period_s)

    @entered
    def release(self, name: Hashable) -> None:
        """Renew it, or call it, no more: a lease then runs out when it does."""
        with self._lock:
            self._periodic.remove(name)

    def give_back(self) -> None:
        """Release every message that is held by itself: nobody can settle it any more."""
        with self._lock:
            held = self._periodic.items()
        for name, renewal in held:
            if isinstance(renewal, Renewal) and isinstance(name, Delivery):
                self.release(name)
                if not name.is_settled:
                    # By its receipt: whoever is at it has not settled it, and is told so.
                    renewal.queue.release_quietly([name.receipt])

    def _plan(self, now: float, look_at: float) -> None:
        """Look at that time, unless an earlier look is planned, which will plan the next one."""
        if not self._planned or self._planned[0] > look_at:
            heappush(self._planned, look_at)
            self._scheduler.schedule(max(0.001, look_at - now), self._look)

    def _look(self) -> None:
        with self._lock:
            now = self._clock.monotonic()
            while self._planned and self._planned[0] <= now:
                heappop(self._planned)
            due = self._periodic.take_due(now)
        for renewal in by_queue(item for item in due if isinstance(item, Renewal)):
            self._extend(renewal)
        for act in due:
            if not isinstance(act, Renewal):
                act()
        with self._lock:
            if (next_due := self._periodic.next_due) is not None:
                self._plan(self._clock.monotonic(), next_due)

    def _extend(self, renewal: "Renewal[Queue, Delivery]") -> None:
        held = renewal.find()
        try:
            renewal.queue.extend([each for each in held if not each.is_settled], renewal.lease_s)
        except Exception as error:
            # The handlers learn of it when they settle their messages; the other leases are still renewed.
            logger.warning("could not renew the leases of %d messages: %s", len(held), error)
