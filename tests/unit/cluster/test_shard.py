"""A shard is a whole queue that goes from owner to owner."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.etcd_gateway import EtcdGateway

import quivermq
from quivermq.clock import SystemClock
from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.shard import OwnedShard, ShardOpener
from quivermq.errors import NotOwner
from quivermq.settings import Settings
from quivermq.shared.etcd import EtcdClient
from quivermq.shared.lease import KeptLease
from quivermq.shared.memory import MemoryStore

KEYS = ClusterKeys("test")


class Shards:
    """Two brokers that may own the same shard, each with a lease."""

    def __init__(self, etcd: EtcdClient, path: Path) -> None:
        self.store = MemoryStore()
        self.leases = {name: KeptLease(etcd, 60, SystemClock()) for name in "ab"}
        self._openers = {
            name: ShardOpener(
                etcd,
                KEYS,
                lambda _: self.store.beside(),
                path / name,
                broker=name,
                settings=Settings(),
                clock=SystemClock(),
            )
            for name in "ab"
        }

    def open(self, broker: str) -> OwnedShard:
        return self._openers[broker].open_shard(3, self.leases[broker])


@pytest.fixture
def shards(etcd: EtcdClient, tmp_path: Path) -> Iterator[Shards]:
    shards = Shards(etcd, tmp_path)
    yield shards
    for lease in shards.leases.values():
        lease.end()


def values(shard: OwnedShard) -> list[bytes]:
    return [message.value for message in quivermq.Connection(shard.engine).queue("orders").read()]


def test_what_was_put_is_with_the_next_owner(shards: Shards) -> None:
    first = shards.open("a")
    quivermq.Connection(first.engine).queue("orders").put_many([b"1", b"2"])
    assert first.is_fresh
    with pytest.raises(NotOwner, match="belongs to a"):
        shards.open("b")
    first.prepare()
    quivermq.Connection(first.engine).queue("orders").put(b"3")
    first.close()
    second = shards.open("b")
    assert values(second) == [b"1", b"2", b"3"]
    second.close()


def test_one_that_lost_its_lease_answers_no_more(shards: Shards, gateway: EtcdGateway) -> None:
    first = shards.open("a")
    quivermq.Connection(first.engine).queue("orders").put(b"1")
    gateway.end_lease(shards.leases["a"].id)
    second = shards.open("b")
    with pytest.raises(NotOwner):
        quivermq.Connection(first.engine).queue("orders").put(b"late")
    assert isinstance(first.failure, NotOwner)
    assert not first.is_fresh
    first.fence("another one has it")
    first.abandon()
    assert values(second) == [b"1"]
    second.close()


def test_one_broker_opens_it_again_in_another_epoch(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shards.open("a")
    quivermq.Connection(first.engine).queue("orders").put(b"1")
    epoch = first.disk.epoch
    # Its key stays, as when etcd did not answer at the end.
    monkeypatch.setattr(first._chunks, "close", lambda: None)
    first.close()
    second = shards.open("a")
    assert second.disk.epoch > epoch
    assert values(second) == [b"1"]
    second.close()
