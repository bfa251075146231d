"""What an operator asks of a cluster: wishes that its brokers obey. They have to see them, no more."""

from quivermq.cluster.naming import ClusterKeys, check_broker_id
from quivermq.cluster.view import ClusterView
from quivermq.cluster.watching import look_at
from quivermq.errors import Conflict, InvalidRequest, NotFound
from quivermq.shared.etcd import EtcdClient, delete_keys, put_key
from quivermq.shared.naming import unique
from quivermq.shared.objects import ObjectStore

ANY = "any"


class ClusterAdmin:
    """Blocks. Every call may raise StoreUnreachable and StoreDenied."""

    def __init__(self, etcd: EtcdClient, keys: ClusterKeys, shards: int) -> None:
        self._etcd = etcd
        self._keys = keys
        self._shards = shards

    def look(self) -> ClusterView:
        """The cluster as it is now."""
        return look_at(self._etcd, self._keys, self._shards)

    def move(self, shard: int, broker: str) -> None:
        """Let a shard belong to a broker from now on; `any` leaves it to placement again.

        Raises NotFound for a shard or a broker that is not there.
        """
        if not 0 <= shard < self._shards:
            raise NotFound(f"there is no shard {shard}: the cluster has {self._shards}, the first one is 0")
        if broker == ANY:
            self._etcd.transact([], [delete_keys(self._keys.wish(shard))])
            return
        self._check_there(broker)
        self._etcd.transact([], [put_key(self._keys.wish(shard), broker.encode())])

    def drain(self, broker: str) -> None:
        """Let a broker own nothing. Raises NotFound for one that is not there."""
        self._check_there(broker)
        self._etcd.transact([], [put_key(self._keys.drain(broker), b"")])

    def undo_drain(self, broker: str) -> None:
        """Let a broker own shards again. It need not be there."""
        self._etcd.transact([], [delete_keys(self._keys.drain(check_broker_id(broker)))])

    def remove(self, broker: str) -> None:
        """Forget what was wished of a broker that will not come back.

        Nothing is taken from one that is there: it would go on to answer until its lease is over. Raises
        Conflict for it, and NotFound where nothing is known of a broker.
        """
        wishes = [shard for shard, wish in self.look().wishes.items() if wish == broker]
        found = self._etcd.range(self._keys.broker(check_broker_id(broker)))
        is_drained = bool(self._etcd.range(self._keys.drain(broker)))
        if not (found or wishes or is_drained):
            raise NotFound(f"there is no broker {broker}: `quiver cluster status` shows those there are")
        if found:
            raise Conflict(
                f"the broker {broker} is there: stop it first; if it was killed just now, its lease has to"
                " end, which takes a few seconds"
            )
        keys = [self._keys.drain(broker), *map(self._keys.wish, wishes)]
        self._etcd.transact([], [delete_keys(key) for key in keys])

    def _check_there(self, broker: str) -> None:
        brokers = self.look().brokers
        if broker not in brokers:
            there = ", ".join(brokers) or "none"
            raise NotFound(f"there is no broker {broker[:200]}: there are {there}")


def try_store(store: ObjectStore) -> None:
    """Raise what keeps a broker from using a bucket: an object is put, read and taken away."""
    name = unique("race/")
    store.put(name, name.encode())
    try:
        if store.get(name, 1024) != name.encode():
            raise InvalidRequest("the bucket does not return what was put into it")
    finally:
        store.remove([name])
