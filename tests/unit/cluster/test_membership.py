"""A broker is there as long as its lease is."""

from collections.abc import Iterator

import pytest
from support.etcd_gateway import EtcdGateway
from support.manual_clock import ManualClock

from quivermq.clock import SystemClock
from quivermq.cluster.membership import BrokerMembership
from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.view import BrokerInfo
from quivermq.cluster.watching import look_at
from quivermq.errors import BrokerExists, InvalidName, StoreUnreachable
from quivermq.shared.etcd import EtcdClient

KEYS = ClusterKeys("test")
INFO = BrokerInfo("a:1", "http://a:1", "0.1", 2)


@pytest.fixture
def member(etcd: EtcdClient) -> Iterator[BrokerMembership]:
    member = BrokerMembership(etcd, KEYS, INFO, lease_s=60, clock=SystemClock())
    member.join()
    yield member
    member.end()


def test_a_broker_is_seen_until_it_ends(etcd: EtcdClient, member: BrokerMembership) -> None:
    assert look_at(etcd, KEYS, 1).brokers == {"a:1": INFO}
    assert member.is_fresh
    member.end()
    assert look_at(etcd, KEYS, 1).brokers == {}
    assert not member.is_fresh


def test_a_second_one_of_its_id_is_refused_after_a_while(
    etcd: EtcdClient, member: BrokerMembership
) -> None:
    clock = ManualClock()
    second = BrokerMembership(etcd, KEYS, INFO, lease_s=60, clock=clock, pause=clock.advance)
    with pytest.raises(BrokerExists, match="say --advertise"):
        second.join()
    assert clock.monotonic() >= 60
    second.end()
    assert look_at(etcd, KEYS, 1).brokers == {"a:1": INFO}


def test_one_that_was_killed_is_waited_for(
    etcd: EtcdClient, gateway: EtcdGateway, member: BrokerMembership
) -> None:
    clock = ManualClock()

    def end(seconds: float) -> None:
        clock.advance(seconds)
        gateway.end_lease(member.lease.id)

    second = BrokerMembership(etcd, KEYS, INFO, lease_s=60, clock=clock, pause=end)
    second.join()
    assert look_at(etcd, KEYS, 1).brokers == {"a:1": INFO}
    second.end()


def test_it_tells_that_it_leaves(etcd: EtcdClient, gateway: EtcdGateway, member: BrokerMembership) -> None:
    member.leave_soon()
    assert look_at(etcd, KEYS, 1).brokers["a:1"].is_leaving
    assert look_at(etcd, KEYS, 1).candidates == []
    gateway.end_lease(member.lease.id)
    with pytest.raises(StoreUnreachable, match="not in the cluster"):
        member.leave_soon()


def test_an_id_is_a_part_of_a_key(etcd: EtcdClient) -> None:
    with pytest.raises(InvalidName, match="no id of a broker"):
        BrokerMembership(etcd, KEYS, INFO._replace(id="a/b"), lease_s=60, clock=SystemClock())
