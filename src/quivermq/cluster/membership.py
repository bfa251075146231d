"""That a broker is there: its key in etcd, under a lease that all its shards share."""

import logging
import time
from collections.abc import Callable

from quivermq.clock import Clock
from quivermq.cluster.naming import ClusterKeys, check_broker_id
from quivermq.cluster.view import BrokerInfo
from quivermq.errors import BrokerExists, StoreUnreachable
from quivermq.shared.etcd import EtcdClient, changed_at, created_at, put_key
from quivermq.shared.lease import KeptLease

logger = logging.getLogger(__name__)

# One that was killed is found there until its lease ends, and a little longer.
_PATIENCE_LEASES = 2
_LOOK_S = 0.25


class BrokerMembership:
    """One broker in a cluster. For one thread; `lease` may be asked by any."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: ClusterKeys,
        info: BrokerInfo,
        *,
        lease_s: int,
        clock: Clock,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        check_broker_id(info.id)
        self._etcd = etcd
        self._key = keys.broker(info.id)
        self._info = info
        self._lease_s = lease_s
        self._clock = clock
        self._pause = pause
        self._lease: KeptLease | None = None
        # The lease under which its key is, as far as it knows.
        self._joined: KeptLease | None = None

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def lease(self) -> KeptLease:
        """The lease under which everything of this broker is."""
        assert self._lease is not None, "it has not joined"
        return self._lease

    @property
    def is_fresh(self) -> bool:
        """Whether nobody else can own what this broker owns, by this machine's own clock."""
        return self._lease is not None and self._lease.is_fresh

    @property
    def lease_left_s(self) -> float:
        """How long the lease is certainly held; below zero, for how long it has not been."""
        return 0.0 if self._lease is None else self._lease.left_s

    @property
    def is_joined(self) -> bool:
        """Whether its key is there, unless somebody has just taken it away."""
        return self._joined is not None and self._joined is self._lease and not self._joined.is_lost

    def join(self) -> None:
        """Be there. Raises BrokerExists when another one of this id is, and stays."""
        deadline = self._clock.monotonic() + _PATIENCE_LEASES * self._lease_s
        while not self.try_to_join():
            if self._clock.monotonic() >= deadline:
                raise BrokerExists(
                    f"there is a broker {self.id} in the cluster: stop that one, or say --advertise or"
                    " cluster.id to be another one"
                )
            self._pause(_LOOK_S)

    def try_to_join(self) -> bool:
        """Be there, unless another one of this id is."""
        lease = self._lease
        if lease is None or not lease.is_fresh:
            if lease is not None:
                lease.let_go()
            lease = self._lease = KeptLease(self._etcd, self._lease_s, self._clock)
        put = put_key(self._key, self._info.encoded(), lease=lease.id)
        self._etcd.transact([created_at(self._key, 0)], [put])
        # Looked at in any case: an attempt before this one may have been carried out.
        found = self._etcd.range(self._key)
        if found and found[0].lease == lease.id:
            self._joined = lease
        return self.is_joined

    def leave_soon(self) -> None:
        """Tell the others that this one is to own nothing any more."""
        self._info = self._info._replace(is_leaving=True)
        found = self._etcd.range(self._key)
        if not found or found[0].lease != self.lease.id:
            raise StoreUnreachable("the broker is not in the cluster just now")
        put = put_key(self._key, self._info.encoded(), lease=self.lease.id)
        self._etcd.transact([changed_at(self._key, found[0].mod_revision)], [put])

    def end(self) -> None:
        """Be there no longer; whatever is still under the lease goes at once."""
        if self._lease is not None:
            self._lease.end()
