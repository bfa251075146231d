"""Keeps a view of the cluster up to date, by one watch of etcd."""

import logging
import threading
from collections.abc import Callable

from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.view import ClusterView
from quivermq.errors import QuiverError
from quivermq.helping import Helper, Latch
from quivermq.shared.etcd import EtcdClient, EtcdEvent, EtcdKey, EtcdWatch

logger = logging.getLogger(__name__)

# A watch in which nothing happens is begun anew after so long: its connection may be gone unnoticed.
SILENCE_S = 60.0
_BACKOFF_S = 0.5


def look_at(etcd: EtcdClient, keys: ClusterKeys, shards: int) -> ClusterView:
    """The cluster as it is now."""
    return ClusterView.of(keys, shards, _found(etcd, keys, shards).values())


def _found(etcd: EtcdClient, keys: ClusterKeys, shards: int) -> dict[str, EtcdKey]:
    return {each.key: each for span in keys.watched(shards) for each in etcd.range(*span)}


class ClusterWatcher:
    """The latest view. A thread of its own follows; `on_change` is called there, and has to be quick."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: ClusterKeys,
        shards: int,
        on_change: Callable[[], None],
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._shards = shards
        self._on_change = on_change
        self._silence_s = silence_s
        self._known: dict[str, EtcdKey] = {}
        self.view = ClusterView(shards)
        self._ends = Latch()
        self._guard = threading.Lock()
        self._watch: EtcdWatch | None = None
        self._thread = Helper(self._run, "quiver-watch")

    def start(self) -> None:
        """Look once, then follow. Raises StoreUnreachable and StoreDenied."""
        self._take_all()
        self._thread.start()

    def look_again(self) -> None:
        """Begin the watch anew: somebody has reason to believe that its connection is gone."""
        with self._guard:
            if self._watch is not None:
                self._watch.close()

    def close(self) -> None:
        """End the thread."""
        self._ends.set()
        self.look_again()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self._follow()
            except QuiverError as error:
                if not self._ends.is_set():
                    logger.warning("the cluster is not watched: %s", error)
                self._ends.wait(_BACKOFF_S)
            except Exception:
                logger.exception("the cluster is not watched")
                self._ends.wait(_BACKOFF_S)

    def _follow(self) -> None:
        watch = self._etcd.watch_all(self._keys.watched(self._shards), silence_s=self._silence_s)
        try:
            with self._guard:
                self._watch = watch
            if self._ends.is_set():
                return
            # Only now: what happens from here on is told.
            self._take_all()
            for events in watch.events():
                self._take(events)
        finally:
            with self._guard:
                self._watch = None
            watch.end()

    def _take_all(self) -> None:
        self._known = _found(self._etcd, self._keys, self._shards)
        self._show()

    def _take(self, events: list[EtcdEvent]) -> None:
        for is_put, key in events:
            known = self._known.get(key.key)
            if known is not None and known.mod_revision > key.mod_revision:
                # It was looked at behind this.
                continue
            if is_put:
                self._known[key.key] = key
            else:
                self._known.pop(key.key, None)
        if events:
            self._show()

    def _show(self) -> None:
        self.view = ClusterView.of(self._keys, self._shards, self._known.values())
        self._on_change()
