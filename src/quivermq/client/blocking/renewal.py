"""The one thread of a connection that does what is due: leases to renew, and acks of streams to send."""

import logging
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeAlias

from quivermq.client.core.holding import Holding
from quivermq.client.core.renewing import Renewal, by_queue
from quivermq.clock import Clock
from quivermq.delivery.delivery import release_quietly
from quivermq.helping import Condition, Helper
from quivermq.model.deliveries import Delivery
from quivermq.reentry import entered

if TYPE_CHECKING:
    from quivermq.client.blocking.queue import RemoteQueue

logger = logging.getLogger(__name__)

Act = Callable[[], None]
Due: TypeAlias = "Renewal[RemoteQueue, Delivery] | Act"


class Renewer:
    """Extends leases after a third of their time, those of one queue together. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._condition = Condition()
        self._holding: Holding[Due] = Holding()
        self._thread = Helper(self._run, "quiver-renewal")
        self._is_closed = False
        # When the thread looks again, None while it does not.
        self._wakes_at: float | None = None

    def hold(self, queue: "RemoteQueue", delivery: Delivery, lease_s: float) -> None:
        """Keep the lease of a delivery until `release`."""
        self.renew(delivery, Renewal(queue, lease_s, lambda: [delivery]))

    def renew(self, name: Hashable, renewal: "Renewal[RemoteQueue, Delivery]") -> None:
        """Keep whatever it finds, until `release`."""
        self._add(name, renewal, renewal.period_s)

    def repeat(self, name: Hashable, act: Act, period_s: float) -> None:
        """Call it again and again, until `release`. It may raise nothing."""
        self._add(name, act, period_s)

    @entered
    def _add(self, name: Hashable, item: Due, period_s: float) -> None:
        with self._condition.lock:
            now = self._clock.monotonic()
            self._holding.hold(name, item, period_s, now)
            if not self._is_closed:
                self._thread.start()
            if self._wakes_at is None or now + period_s < self._wakes_at:
                # Not otherwise: for most messages, whose handlers are quick, the thread sleeps on.
                self._condition.notify_all()
                self._wakes_at = now + period_s

    @entered
    def release(self, name: Hashable) -> None:
        """Let the lease run out when it does."""
        with self._condition.lock:
            self._holding.release(name)

    def give_back(self) -> None:
        """Release every message that is held by itself: nobody can settle it any more."""
        with self._condition.lock:
            held = self._holding.items()
        for name, renewal in held:
            if isinstance(renewal, Renewal) and isinstance(name, Delivery):
                self.release(name)
                if not name.is_settled:
                    # By its receipt: whoever is at it has not settled it, and is told so.
                    release_quietly(renewal.queue.release, [name.receipt])

    def close(self) -> None:
        """Renew nothing any more. Returns once the thread has ended."""
        with self._condition.lock:
            self._is_closed = True
            self._condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            for renewal in by_queue(item for item in due if isinstance(item, Renewal)):
                self._extend(renewal)
            for act in due:
                if not isinstance(act, Renewal):
                    act()

    def _wait(self) -> list[Due] | None:
        with self._condition.lock:
            while not self._is_closed:
                now = self._clock.monotonic()
                if due := self._holding.take_due(now):
                    return due
                self._wakes_at = wakes_at = self._holding.next_due
                self._condition.wait(
                    None if wakes_at is None else min(wakes_at - now, threading.TIMEOUT_MAX)
                )
        return None

    def _extend(self, renewal: "Renewal[RemoteQueue, Delivery]") -> None:
        held = renewal.find()
        try:
            renewal.queue.extend([each for each in held if not each.is_settled], renewal.lease_s)
        except Exception as error:
            # The handlers learn of it when they settle their messages; the other leases are still renewed.
            logger.warning("could not renew the leases of %d messages: %s", len(held), error)
