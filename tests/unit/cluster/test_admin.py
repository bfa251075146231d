"""What operators ask of a cluster."""

import pytest

from quivermq.cluster.admin import ClusterAdmin, try_store
from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.view import BrokerInfo
from quivermq.errors import Conflict, NotFound, StoreUnreachable
from quivermq.shared.etcd import EtcdClient, delete_keys, put_key
from quivermq.shared.memory import MemoryStore, StoreFault

KEYS = ClusterKeys("test")


@pytest.fixture
def admin(etcd: EtcdClient) -> ClusterAdmin:
    for name in "ab":
        lease = etcd.grant_lease(60)
        info = BrokerInfo(name, f"http://{name}", "1")
        etcd.transact([], [put_key(KEYS.broker(name), info.encoded(), lease=lease)])
    return ClusterAdmin(etcd, KEYS, 4)


def test_a_shard_is_wished_to_a_broker_and_left_to_placement_again(admin: ClusterAdmin) -> None:
    admin.move(3, "b")
    assert admin.look().wishes == {3: "b"}
    assert admin.look().targets[3] == "b"
    admin.move(3, "any")
    assert admin.look().wishes == {}
    for shard, broker in ((4, "a"), (-1, "a"), (0, "c")):
        with pytest.raises(NotFound):
            admin.move(shard, broker)
    assert admin.look().wishes == {}


def test_a_broker_is_drained_and_not(admin: ClusterAdmin) -> None:
    admin.drain("a")
    assert set(admin.look().targets.values()) == {"b"}
    admin.undo_drain("a")
    assert set(admin.look().targets.values()) == {"a", "b"}
    with pytest.raises(NotFound, match="there are a, b"):
        admin.drain("c")


def test_one_that_is_removed_leaves_nothing(admin: ClusterAdmin, etcd: EtcdClient) -> None:
    admin.move(1, "a")
    admin.drain("a")
    with pytest.raises(Conflict, match="stop it first"):
        admin.remove("a")
    assert admin.look().wishes == {1: "a"}
    etcd.transact([], [delete_keys(KEYS.broker("a"))])
    admin.remove("a")
    view = admin.look()
    assert (view.wishes, set(view.drains)) == ({}, set())
    with pytest.raises(NotFound, match="no broker a"):
        admin.remove("a")


def test_a_bucket_is_tried() -> None:
    store = MemoryStore()
    try_store(store)
    assert store.objects == {}
    with pytest.raises(StoreUnreachable):
        try_store(MemoryStore(fault=lambda _: StoreFault.FAIL))
