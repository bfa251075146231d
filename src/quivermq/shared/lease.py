"""A lease of etcd that is kept alive until it is ended, and whether it is certainly still held."""

import logging

from quivermq.clock import Clock
from quivermq.errors import QuiverError
from quivermq.helping import Helper, Latch
from quivermq.shared.etcd import EtcdClient

logger = logging.getLogger(__name__)

# One may be missed, and the lease is still held. Each is a request, so there are not more of them.
_KEEPS_PER_LEASE = 2.5
# After one that failed, the next one comes sooner.
_REPEATS_PER_LEASE = 12


class KeptLease:
    """Granted when it is made. A thread keeps it alive, also while the disk waits for its store."""

    def __init__(self, etcd: EtcdClient, seconds: int, clock: Clock) -> None:
        self._etcd = etcd
        self._seconds = seconds
        self._clock = clock
        self._is_lost = False
        self._ends = Latch()
        # Counted from before it was asked for: etcd began to count later.
        asked = clock.monotonic()
        self.id = etcd.grant_lease(seconds)
        self._kept_until = asked + seconds
        self._thread = Helper(self._keep, "quiver-lease")
        self._thread.start()

    @property
    def is_fresh(self) -> bool:
        """Whether etcd cannot have ended it yet."""
        return not self._is_lost and self._clock.monotonic() < self._kept_until

    @property
    def left_s(self) -> float:
        """For how long etcd cannot have ended it; below zero, for how long it may have."""
        left_s = self._kept_until - self._clock.monotonic()
        return min(left_s, 0.0) if self._is_lost else left_s

    @property
    def is_lost(self) -> bool:
        """Whether etcd has ended it, for certain: one that is not fresh may become fresh again."""
        return self._is_lost

    def lose(self) -> None:
        """Somebody has seen that what was under it is gone."""
        self._is_lost = True

    def end(self) -> None:
        """Give it back, so that its keys go at once."""
        self.let_go()
        if not self._is_lost:
            self._etcd.revoke_lease(self.id)
            self._is_lost = True

    def let_go(self) -> None:
        """Keep it no longer: it ends by itself."""
        self._ends.set()
        self._thread.join()

    def _keep(self) -> None:
        keeps = _KEEPS_PER_LEASE
        while not self._ends.wait(self._seconds / keeps):
            asked = self._clock.monotonic()
            try:
                if not self._etcd.keep_lease(self.id):
                    self._is_lost = True
                    logger.warning("a lease of etcd has ended: somebody else may be the owner")
                    break
                self._kept_until = asked + self._seconds
                keeps = _KEEPS_PER_LEASE
            except QuiverError as error:
                keeps = _REPEATS_PER_LEASE
                logger.warning("a lease of etcd was not kept: %s", error)
        self._etcd.close()
