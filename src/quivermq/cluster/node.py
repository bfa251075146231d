"""`ClusterNode`: all that a broker is in a cluster, but for HTTP. Its membership, its view, its shards."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

from quivermq.clock import Clock
from quivermq.cluster.config import ClusterConfig
from quivermq.cluster.hosting import Hosting, HostingFigures, HostingLimits, OpenShard, State
from quivermq.cluster.membership import BrokerMembership
from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.shard import OwnedShard, ShardOpener, StoreOf
from quivermq.cluster.view import BrokerInfo, ClusterView
from quivermq.cluster.watching import ClusterWatcher
from quivermq.errors import QuiverError
from quivermq.settings import Settings
from quivermq.shared import SharedLimits
from quivermq.shared.etcd import EtcdClient

ShardCall = Callable[[OwnedShard], None]


class ClusterNode:
    """Made, then started once its address is known. `on_open` and `on_close` are called by other threads.

    `on_close` returns once nobody works on the shard any more.
    """

    def __init__(
        self,
        etcd: EtcdClient,
        keys: ClusterKeys,
        config: ClusterConfig,
        *,
        store_of: StoreOf,
        cache: Path,
        settings: Settings,
        clock: Clock,
        limits: HostingLimits | None = None,
        shared_limits: SharedLimits | None = None,
    ) -> None:
        self.etcd = etcd
        self.keys = keys
        self.config = config
        self.is_leaving = False
        self._is_closed = False
        self._store_of = store_of
        self._cache = cache
        self._settings = settings
        self._clock = clock
        self._limits = limits
        self._shared_limits = shared_limits
        self._membership: BrokerMembership | None = None
        self._hosting: Hosting | None = None
        self._watcher = ClusterWatcher(etcd, keys, config.shards, self._look)

    @property
    def id(self) -> str:
        """Who it is; nobody before it was started."""
        return "" if self._membership is None else self._membership.id

    @property
    def view(self) -> ClusterView:
        """The cluster as it was seen last."""
        return self._watcher.view

    @property
    def is_fresh(self) -> bool:
        """Whether it may answer for its shards, by its lease."""
        return self._membership is not None and self._membership.is_joined and self._membership.is_fresh

    @property
    def figures(self) -> HostingFigures:
        return HostingFigures() if self._hosting is None else self._hosting.figures

    @property
    def lease_left_s(self) -> float:
        """How long its lease is certainly held; below zero, for how long it has not been."""
        return 0.0 if self._membership is None else self._membership.lease_left_s

    def ownerless_s(self) -> dict[int, float]:
        """By shard: for how long nobody has owned it, as far as this broker has seen."""
        return {} if self._hosting is None else self._hosting.ownerless_s()

    def held(self) -> dict[int, State]:
        """The shards that it is doing something with."""
        return {} if self._hosting is None else self._hosting.held()

    def start(self, info: BrokerInfo, *, on_open: ShardCall, on_close: ShardCall) -> None:
        """Join the cluster, and begin to claim shards.

        Raises BrokerExists, StoreUnreachable and StoreDenied.
        """
        membership = BrokerMembership(
            self.etcd, self.keys, info, lease_s=self._settings.cluster.lease_s, clock=self._clock
        )
        opener = ShardOpener(
            self.etcd,
            self.keys,
            self._store_of,
            self._cache,
            broker=info.id,
            settings=self._settings,
            clock=self._clock,
            limits=self._shared_limits,
        )
        self._membership = membership
        membership.join()
        self._watcher.start()
        self._hosting = Hosting(
            membership,
            lambda: self.view,
            opener.open_shard,
            on_open=_of_owned(on_open),
            on_close=_of_owned(on_close),
            clock=self._clock,
            limits=self._limits,
        )
        self._hosting.start()

    def leave(self, hurry: threading.Event) -> None:
        """Give all shards to others; `hurry` lets go of them at once."""
        self.is_leaving = True
        if self._hosting is not None:
            self._hosting.leave(hurry)

    def close(self) -> None:
        """Let go of what is left, and of etcd. Closing twice is allowed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._hosting is not None:
            self._hosting.close()
        elif self._membership is not None:
            # The lease ends by itself where etcd does not answer.
            with suppress(QuiverError):
                self._membership.end()
        self._watcher.close()
        self.etcd.close()

    def _look(self) -> None:
        if self._hosting is not None:
            self._hosting.look()


def _of_owned(call: ShardCall) -> Callable[[OpenShard], None]:
    # The opener gives no others.
    return lambda shard: call(cast(OwnedShard, shard))
