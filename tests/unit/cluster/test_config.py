"""What a cluster is, decided once."""

from dataclasses import replace

import pytest
from support.etcd_gateway import EtcdGateway

from quivermq.cluster.config import ClusterConfig, create_config, load_config
from quivermq.cluster.naming import ClusterKeys
from quivermq.errors import ClusterNotFound, Conflict, InvalidName, InvalidRequest, StoreUnreachable
from quivermq.shared.etcd import EtcdClient

KEYS = ClusterKeys("test")
CONFIG = ClusterConfig("s3://bucket/prefix", 8)


def test_a_cluster_is_made_once(etcd: EtcdClient) -> None:
    with pytest.raises(ClusterNotFound, match="quiver cluster init"):
        load_config(etcd, KEYS)
    assert create_config(etcd, KEYS, CONFIG) == create_config(etcd, KEYS, CONFIG) == CONFIG
    assert load_config(etcd, KEYS) == CONFIG
    with pytest.raises(Conflict, match="8 shards in s3://bucket/prefix"):
        create_config(etcd, KEYS, replace(CONFIG, shards=9))
    assert load_config(etcd, KEYS) == CONFIG


def test_a_lost_answer_makes_it_once(etcd: EtcdClient, gateway: EtcdGateway) -> None:
    gateway.fault = lambda path, _number: "lose_answer" if path == "/v3/kv/txn" else None
    with pytest.raises(StoreUnreachable):
        create_config(etcd, KEYS, CONFIG)
    gateway.fault = lambda _path, _number: None
    assert create_config(etcd, KEYS, CONFIG) == CONFIG


def test_a_broker_of_another_bucket_is_refused() -> None:
    CONFIG.check_bucket(None)
    CONFIG.check_bucket("s3://bucket/prefix/")
    with pytest.raises(InvalidRequest, match="not in s3://other"):
        CONFIG.check_bucket("s3://other")


@pytest.mark.parametrize("shards", [0, 1025])
def test_there_are_only_so_many_shards(shards: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to 1024 shards"):
        ClusterConfig("s3://bucket", shards)


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "x" * 101])
def test_a_cluster_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidName, match="no name of a cluster"):
        ClusterKeys(name)


def test_a_later_format_is_refused(etcd: EtcdClient) -> None:
    with pytest.raises(InvalidRequest, match="format 2"):
        create_config(etcd, KEYS, replace(CONFIG, format=2))
