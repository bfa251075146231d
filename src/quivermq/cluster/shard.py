"""A shard that this broker owns: its chunks, its disk, and the engine on it. Blocks."""

import logging
from collections.abc import Callable
from pathlib import Path

from quivermq.clock import Clock
from quivermq.cluster.naming import ClusterKeys
from quivermq.engine import Engine, open_engine
from quivermq.errors import NotOwner, QuiverError
from quivermq.settings import Settings
from quivermq.shared import SharedDisk, SharedLimits, open_shared
from quivermq.shared.etcd import EtcdClient
from quivermq.shared.etcd_chunks import EtcdChunks
from quivermq.shared.lease import KeptLease
from quivermq.shared.objects import ObjectStore

logger = logging.getLogger(__name__)

# Gives the store of a shard.
StoreOf = Callable[[int], ObjectStore]


class OwnedShard:
    """Open until it is closed or abandoned. Thread-safe, but for these two."""

    def __init__(self, number: int, chunks: EtcdChunks, disk: SharedDisk, engine: Engine) -> None:
        self.number = number
        self.disk = disk
        self.engine = engine
        self._chunks = chunks

    @property
    def is_fresh(self) -> bool:
        """Whether it may be answered for: nobody else can be the owner."""
        return self._chunks.is_fresh and not isinstance(self.disk.failure, NotOwner)

    @property
    def failure(self) -> QuiverError | None:
        """Why nothing can be stored any more, if that is so."""
        return self.disk.failure

    def prepare(self) -> None:
        """Make it quick for the next owner to open. It is in use meanwhile."""
        self.disk.checkpoint()

    def close(self) -> None:
        """Write everything, and let go of it, so that another one can claim it at once.

        Nobody owns it afterwards, whatever is raised.
        """
        try:
            self.engine.close()
        finally:
            self.disk.close()

    def fence(self, reason: str) -> None:
        """Let nothing more be stored."""
        self.disk.fence(reason)

    def abandon(self) -> None:
        """Let go of it as it is, once it is fenced: somebody else may own it."""
        try:
            self.engine.close()
        except QuiverError as error:
            # What it did not write, it could not have written any more.
            logger.info("shard %d was left: %s", self.number, error)
        finally:
            self.disk.abandon()


class ShardOpener:
    """Opens the shards of a cluster for one broker."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: ClusterKeys,
        store_of: StoreOf,
        cache: Path,
        *,
        broker: str,
        settings: Settings,
        clock: Clock,
        limits: SharedLimits | None = None,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._store_of = store_of
        self._cache = cache
        self._broker = broker
        self._settings = settings
        self._clock = clock
        self._limits = limits

    def open_shard(self, number: int, lease: KeptLease) -> OwnedShard:
        """Claim a shard, rebuild it and open it. Raises NotOwner when somebody else was faster."""
        chunks = EtcdChunks(
            self._store_of(number),
            self._etcd,
            self._keys.shard(number),
            owner=self._broker,
            lease=lease,
            clock=self._clock,
        )
        disk = open_shared(chunks, self._cache / str(number), limits=self._limits, clock=self._clock)
        try:
            engine = open_engine(disk.root, self._settings, disk=disk, clock=self._clock)
        except BaseException:
            disk.abandon()
            raise
        return OwnedShard(number, chunks, disk, engine)
