"""Brokers share the shards of a cluster: they claim, give away, lose and leave."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.etcd_gateway import EtcdGateway
from support.threads import PATIENCE_S, start, wait_until

from quivermq.clock import SystemClock
from quivermq.cluster.hosting import Hosting, HostingLimits, OpenShard, State
from quivermq.cluster.membership import BrokerMembership
from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.view import BrokerInfo, ClusterView
from quivermq.cluster.watching import ClusterWatcher, look_at
from quivermq.errors import DamagedChunk, NotOwner, QuiverError, StorageFailed
from quivermq.shared.etcd import EtcdClient, delete_keys, put_key
from quivermq.shared.etcd_chunks import EtcdChunks
from quivermq.shared.lease import KeptLease
from quivermq.shared.memory import MemoryStore

KEYS = ClusterKeys("test")
SHARDS = 8
LIMITS = HostingLimits(patience_s=0.2, retry_s=0.01, trouble_s=0.05, look_s=0.02)


class ClaimedShard:
    """A shard without a disk: only its owner's key."""

    def __init__(self, number: int, chunks: EtcdChunks) -> None:
        self.number = number
        self.chunks = chunks
        self.failure: QuiverError | None = None
        self.calls: list[str] = []
        # Set: a checkpoint is stored at once. Otherwise that is tried until somebody fences it.
        self.store_answers = threading.Event()
        self.store_answers.set()

    def prepare(self) -> None:
        self.calls.append("prepare")
        self.store_answers.wait()

    def close(self) -> None:
        self.calls.append("close")
        self.chunks.close()

    def fence(self, reason: str) -> None:
        self.calls.append("fence")
        self.failure = NotOwner(reason)
        self.store_answers.set()

    def abandon(self) -> None:
        self.calls.append("abandon")


@dataclass
class Broker:
    """A broker without HTTP."""

    etcd: EtcdClient
    id: str
    shards: dict[int, ClaimedShard] = field(default_factory=dict)
    closed: list[ClaimedShard] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        info = BrokerInfo(self.id, f"http://{self.id}", "1")
        self.membership = BrokerMembership(self.etcd, KEYS, info, lease_s=60, clock=SystemClock())
        self.watcher = ClusterWatcher(self.etcd, KEYS, SHARDS, self._look)
        self.hosting = Hosting(
            self.membership,
            lambda: self.watcher.view,
            self._open,
            on_open=self._add,
            on_close=self._remove,
            clock=SystemClock(),
            limits=LIMITS,
        )

    def _look(self) -> None:
        self.hosting.look()

    def _open(self, number: int, lease: KeptLease) -> ClaimedShard:
        if number in self.broken:
            raise DamagedChunk("damaged", path=__file__)  # type: ignore[arg-type]
        chunks = EtcdChunks(MemoryStore(), self.etcd, KEYS.shard(number), owner=self.id, lease=lease)
        chunks.claim()
        return ClaimedShard(number, chunks)

    def _add(self, shard: OpenShard) -> None:
        assert isinstance(shard, ClaimedShard)
        self.shards[shard.number] = shard

    def _remove(self, shard: OpenShard) -> None:
        assert "close" not in self.shards[shard.number].calls
        self.closed.append(self.shards.pop(shard.number))

    def start(self) -> None:
        self.membership.join()
        self.watcher.start()
        self.hosting.start()

    def leave(self) -> None:
        self.hosting.leave(threading.Event())

    def close(self) -> None:
        self.hosting.close()
        self.watcher.close()


class Brokers:
    """Brokers of one cluster."""

    def __init__(self, etcd: EtcdClient, gateway: EtcdGateway, until: ExitStack) -> None:
        self.etcd = etcd
        self.gateway = gateway
        self._until = until
        self.all: dict[str, Broker] = {}

    def start(self, *names: str, broken: set[int] | None = None) -> list[Broker]:
        started = [Broker(self.etcd, name, broken=broken or set()) for name in names]
        for broker in started:
            broker.start()
            self._until.callback(broker.close)
            self.all[broker.id] = broker
        return started

    @property
    def view(self) -> ClusterView:
        return look_at(self.etcd, KEYS, SHARDS)

    def settle(self, view: Callable[[], ClusterView] | None = None) -> None:
        """Return once every shard is where it belongs, and open there."""
        wait_until(self._is_settled)

    def _is_settled(self) -> bool:
        view = self.view
        owners = {shard: owner.broker for shard, owner in view.owners.items()}
        return owners == view.targets and all(
            set(self.all[each].shards) == {shard for shard, owner in owners.items() if owner == each}
            for each in view.brokers
        )


@pytest.fixture
def brokers(etcd: EtcdClient, gateway: EtcdGateway) -> Iterator[Brokers]:
    with ExitStack() as until:
        yield Brokers(etcd, gateway, until)


def test_one_broker_owns_everything(brokers: Brokers) -> None:
    [one] = brokers.start("a")
    brokers.settle()
    assert set(one.shards) == set(range(SHARDS))
    assert one.hosting.held() == dict.fromkeys(range(SHARDS), State.OPEN)
    assert one.hosting.figures.opened == SHARDS


def test_those_that_come_get_their_shards(brokers: Brokers) -> None:
    [first] = brokers.start("a")
    brokers.settle()
    brokers.start("b", "c")
    brokers.settle()
    assert {len(broker.shards) for broker in brokers.all.values()} <= {2, 3}
    # In order: made ready while it is in use, then answered for no more, then closed.
    assert all(shard.calls == ["prepare", "close"] for shard in first.closed)
    assert first.hosting.figures.given == len(first.closed) == SHARDS - len(first.shards)


def test_the_shards_of_one_that_is_gone_go_to_the_others(brokers: Brokers) -> None:
    gone, *_ = brokers.start("a", "b", "c")
    brokers.settle()
    was = set(gone.shards)
    mine = list(gone.shards.values())
    epochs = {shard: owner.epoch for shard, owner in brokers.view.owners.items()}
    brokers.gateway.end_lease(gone.membership.lease.id)
    wait_until(lambda: all(o.epoch > epochs[s] for s, o in brokers.view.owners.items() if s in was))
    # It sees that its own key is gone, before its next keepalive.
    wait_until(lambda: all(shard.calls[:2] == ["fence", "abandon"] for shard in mine))
    assert was == {shard.number for shard in mine}


def test_one_that_lost_its_lease_lets_go_and_comes_again(brokers: Brokers) -> None:
    one, _ = brokers.start("a", "b")
    brokers.settle()
    mine = list(one.shards.values())
    # What the next keepalive says.
    lost = one.membership.lease
    lost._is_lost = True
    wait_until(lambda: len(one.closed) == len(mine))
    wait_until(lambda: all(shard.calls == ["fence", "abandon"] for shard in mine))
    # Its old key is in its way, until that lease has ended for etcd, too.
    wait_until(lambda: one.membership.is_fresh)
    assert not one.membership.is_joined
    brokers.gateway.end_lease(lost.id)
    wait_until(lambda: one.membership.is_joined)
    brokers.settle()
    assert one.hosting.figures.lost == len(mine)


def test_a_shard_that_another_one_has_is_lost_alone(brokers: Brokers) -> None:
    [one] = brokers.start("a")
    brokers.settle()
    shard = one.shards[3]
    shard.failure = NotOwner("another one has it")
    wait_until(lambda: one.closed)
    assert one.closed == [shard]
    # Its key is still this broker's, so it takes it again, with another epoch.
    wait_until(lambda: 3 in one.shards)
    assert one.shards[3].chunks.epoch > shard.chunks.epoch


def test_a_shard_in_which_nothing_can_be_stored_any_more_is_opened_anew(brokers: Brokers) -> None:
    [one] = brokers.start("a")
    brokers.settle()
    shard = one.shards[3]
    shard.failure = StorageFailed("commits have ended", path=Path("chunk"))
    wait_until(lambda: one.closed)
    assert one.closed == [shard]
    assert shard.calls == ["fence", "abandon"]
    wait_until(lambda: 3 in one.shards)
    assert one.shards[3].chunks.epoch > shard.chunks.epoch


def test_one_that_leaves_gives_everything_away(brokers: Brokers) -> None:
    one, _ = brokers.start("a", "b")
    brokers.settle()
    mine = list(one.shards.values())
    one.leave()
    assert one.hosting.held() == {}
    assert all(shard.calls == ["prepare", "close"] for shard in mine)
    one.close()
    brokers.settle()
    assert set(brokers.view.brokers) == {"b"}
    assert len(brokers.all["b"].shards) == SHARDS


def test_the_last_one_that_leaves_lets_go(brokers: Brokers) -> None:
    [one] = brokers.start("a")
    brokers.settle()
    one.leave()
    assert one.hosting.held() == {}
    assert brokers.view.owners == {}


def test_the_end_waits_for_no_checkpoint(brokers: Brokers) -> None:
    [one] = brokers.start("a")
    brokers.settle()
    mine = list(one.shards.values())
    for shard in mine:
        shard.store_answers.clear()
    ending = start(one.hosting.close)
    try:
        wait_until(lambda: ending.done() or any("prepare" in shard.calls for shard in mine))
    finally:
        for shard in mine:
            shard.store_answers.set()
    ending.result(PATIENCE_S)
    assert [shard.calls for shard in mine] == [["close"]] * SHARDS
    assert brokers.view.owners == {}


def test_a_wish_moves_a_shard_and_a_drain_all(brokers: Brokers, etcd: EtcdClient) -> None:
    one, _ = brokers.start("a", "b")
    brokers.settle()
    shard = min(one.shards)
    etcd.transact([], [put_key(KEYS.wish(shard), b"b")])
    wait_until(lambda: shard in brokers.all["b"].shards)
    etcd.transact([], [delete_keys(KEYS.wish(shard)), put_key(KEYS.drain("b"), b"")])
    wait_until(lambda: len(one.shards) == SHARDS)
    etcd.transact([], [delete_keys(KEYS.drain("b"))])
    brokers.settle()
    assert brokers.all["b"].shards


def test_the_next_one_takes_what_the_first_cannot_open(brokers: Brokers) -> None:
    [one] = brokers.start("a", broken=set(range(SHARDS)))
    wait_until(lambda: len(one.hosting.figures.troubles) == SHARDS)
    [two] = brokers.start("b")
    wait_until(lambda: len(two.hosting.held()) > SHARDS / 2)
    assert one.shards == {}
    assert one.hosting.figures.failed
    one.broken.clear()
    brokers.settle()
    assert one.hosting.figures.troubles == {}
