"""The view follows etcd, also over the end of a watch."""

import threading
from collections.abc import Callable, Iterator

import pytest
from support.etcd_gateway import EtcdGateway
from support.threads import PATIENCE_S

from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.topics import narrow, widen
from quivermq.cluster.view import BrokerInfo, ClusterView, Owner
from quivermq.cluster.watching import ClusterWatcher
from quivermq.errors import StoreUnreachable
from quivermq.shared.etcd import EtcdClient, put_key

KEYS = ClusterKeys("test")
SHARDS = 4


class Watching:
    """A watcher, and waiting for what it sees."""

    def __init__(self, etcd: EtcdClient) -> None:
        self._news = threading.Condition()
        self.watcher = ClusterWatcher(etcd, KEYS, SHARDS, self._tell)

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    def wait(self, is_seen: Callable[[ClusterView], object]) -> None:
        with self._news:
            assert self._news.wait_for(lambda: is_seen(self.watcher.view), PATIENCE_S)


@pytest.fixture
def watching(etcd: EtcdClient) -> Iterator[Watching]:
    watching = Watching(etcd)
    watching.watcher.start()
    yield watching
    watching.watcher.close()


def put(etcd: EtcdClient, key: str, value: bytes, lease: int = 0) -> int:
    revision = etcd.transact([], [put_key(key, value, lease=lease)])
    assert revision is not None
    return revision


def test_everything_that_happens_is_seen(
    etcd: EtcdClient, gateway: EtcdGateway, watching: Watching
) -> None:
    info = BrokerInfo("a", "http://a", "1", 2)
    lease = etcd.grant_lease(60)
    put(etcd, KEYS.broker("a"), info.encoded(), lease)
    epoch = put(etcd, KEYS.owner(3), b"a", lease)
    put(etcd, KEYS.wish(1), b"b")
    put(etcd, KEYS.drain("b"), b"")
    widen(etcd, KEYS, "orders", 2, SHARDS)
    # Kinds are looked at one after the other, so the last one may be seen first.
    watching.wait(lambda view: all((view.brokers, view.owners, view.wishes, view.drains, view.topics)))
    view = watching.watcher.view
    assert view.brokers == {"a": info}
    assert view.owners == {3: Owner("a", epoch)}
    assert view.wishes == {1: "b"}
    assert set(view.drains) == {"b"}
    assert view.revision == gateway.revision
    assert view.url_of(3) == "http://a"
    assert view.url_of(0) is None
    shown = view.to_json()
    assert shown["brokers"][0]["shards"] == [3]
    assert shown["owners"][3] == {
        "shard": 3,
        "broker": "a",
        "url": "http://a",
        "epoch": epoch,
        "standby": None,
        "wish": None,
    }
    gateway.end_lease(lease)
    watching.wait(lambda view: not view.owners and not view.brokers)
    narrow(etcd, KEYS, "orders")
    watching.wait(lambda view: not view.topics)


def test_what_happens_between_two_watches_is_seen(
    etcd: EtcdClient, gateway: EtcdGateway, watching: Watching
) -> None:
    def is_seen(view: ClusterView) -> bool:
        return number in view.wishes

    for number in range(3):
        gateway.fault = lambda path, _number: "fail" if path == "/v3/watch" else None
        watching.watcher.look_again()
        put(etcd, KEYS.wish(number), b"x")
        gateway.fault = lambda _path, _number: None
        watching.wait(is_seen)


def test_chunks_are_nothing_that_is_watched(etcd: EtcdClient, watching: Watching) -> None:
    put(etcd, f"{KEYS.shard(0)}/chunks/{0:020d}", b"x")
    revision = put(etcd, KEYS.wish(0), b"a")
    watching.wait(lambda view: view.wishes)
    assert watching.watcher.view.revision == revision
    assert watching.watcher.view.owners == {}


def test_without_etcd_there_is_nothing_to_follow(etcd: EtcdClient, gateway: EtcdGateway) -> None:
    gateway.fault = lambda _path, _number: "fail"
    watching = Watching(etcd)
    with pytest.raises(StoreUnreachable):
        watching.watcher.start()
    watching.watcher.close()
