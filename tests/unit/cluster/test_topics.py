"""Wide topics are decided once."""

import pytest

from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.placement import spread_over
from quivermq.cluster.topics import narrow, widen
from quivermq.cluster.watching import look_at
from quivermq.errors import InvalidName, InvalidRequest, TopicExists, TopicNotFound
from quivermq.shared.etcd import EtcdClient

KEYS = ClusterKeys("test")


def test_a_topic_is_made_wide_once(etcd: EtcdClient) -> None:
    chosen = spread_over("orders", 4, 16)
    assert widen(etcd, KEYS, "orders", 4, 16) == widen(etcd, KEYS, "orders", 4, 16) == chosen
    with pytest.raises(TopicExists, match="spread over 4 shards"):
        widen(etcd, KEYS, "orders", 5, 16)
    assert look_at(etcd, KEYS, 16).topics == {"orders": tuple(chosen)}
    narrow(etcd, KEYS, "orders")
    assert look_at(etcd, KEYS, 16).topics == {}
    with pytest.raises(TopicNotFound, match="no wide topic is called orders"):
        narrow(etcd, KEYS, "orders")


def test_what_is_wrong_leaves_nothing(etcd: EtcdClient) -> None:
    with pytest.raises(InvalidName):
        widen(etcd, KEYS, "no/name", 4, 16)
    with pytest.raises(InvalidRequest, match="1 to 16 shards"):
        widen(etcd, KEYS, "orders", 17, 16)
    assert look_at(etcd, KEYS, 16).topics == {}
