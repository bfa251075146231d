"""A cluster of real brokers: shards move, brokers die and stand still, and what was acknowledged stays."""

import json
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.cluster import SHARDS, BrokerProcess, ClusterProcesses, running_etcd, wait_until

import quivermq
from quivermq.cluster.placement import shard_of
from quivermq.server.keys import create_key

TOPIC = "orders"
SHARD = shard_of(TOPIC, SHARDS)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd") / "data") as url:
        yield url


@pytest.fixture
def cluster(etcd: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ClusterProcesses]:
    with ExitStack() as until:
        yield ClusterProcesses(etcd, request.node.name.partition("[")[0], tmp_path, until)


def put(broker: BrokerProcess, *values: str) -> list[int | None]:
    with broker.shard(SHARD) as mq:
        return [mq.queue(TOPIC).put(value.encode()).offset for value in values]


def values(broker: BrokerProcess) -> list[str]:
    with broker.shard(SHARD) as mq:
        return [message.value.decode() for message in mq.queue(TOPIC).read()]


def owners(view: dict[str, Any]) -> set[str]:
    return {owner["broker"] for owner in view["owners"]}


def test_brokers_share_the_shards_and_know_who_has_which(cluster: ClusterProcesses) -> None:
    cluster.make()
    brokers = [cluster.start() for _ in range(3)]
    view = cluster.settle(lambda view: len(owners(view)) == 3)
    assert {each["id"] for each in view["brokers"]} == {each.id for each in brokers}
    assert view["shards"] == SHARDS
    owner = cluster.owner(SHARD)
    others = [each for each in brokers if each is not owner]
    assert put(owner, "1") == [0]
    for other in others:
        # Below /shards a broker sends on; the library goes there itself.
        status, answer = other.ask(f"/shards/{SHARD}/v1/topics/{TOPIC}")
        assert (status, answer["error"]["code"], answer["error"]["url"]) == (307, "not_owner", owner.url)
        assert answer["error"]["retryable"]
        # At the root it asks the owner itself.
        path = f"/v1/topics/{TOPIC}/messages"
        status, answer = other.ask(path, "POST", {"value": other.id})
        assert status == 200, answer
        assert other.ask(f"/v1/topics/{TOPIC}")[1]["messages"] == answer["offset"] + 1
        assert [topic["name"] for topic in other.ask("/v1/topics")[1]["topics"]] == [TOPIC]
        assert other.ask("/v1/stats")[1]["messages"] == answer["offset"] + 1
    assert values(owner) == ["1", *(other.id for other in others)]


def test_what_was_acknowledged_survives_kill_9(cluster: ClusterProcesses) -> None:
    cluster.make()
    for _ in range(3):
        cluster.start()
    cluster.settle(lambda view: len(owners(view)) == 3)
    first = cluster.owner(SHARD)
    put(first, "1", "2", "3")
    first.end(signal.SIGKILL)
    cluster.settle(lambda view: first.id not in owners(view))
    second = cluster.owner(SHARD)
    assert put(second, "4") == [3]
    assert values(second) == ["1", "2", "3", "4"]


def test_sigterm_gives_the_shards_to_the_others(cluster: ClusterProcesses) -> None:
    cluster.make()
    first, second = cluster.start(), cluster.start()
    cluster.settle(lambda view: len(owners(view)) == 2)
    put(cluster.owner(SHARD), "1", "2")
    assert first.end() == 0
    view = cluster.settle(lambda view: owners(view) == {second.id})
    assert [each["id"] for each in view["brokers"]] == [second.id]
    assert values(second) == ["1", "2"]
    # The last one only lets go, and the next one finds everything.
    assert second.end() == 0
    third = cluster.start()
    cluster.settle(lambda view: owners(view) == {third.id})
    assert put(third, "3") == [2]
    assert values(third) == ["1", "2", "3"]


def test_one_that_stood_still_answers_nothing_wrong(cluster: ClusterProcesses) -> None:
    cluster.make()
    for _ in range(2):
        cluster.start()
    cluster.settle(lambda view: len(owners(view)) == 2)
    zombie = cluster.owner(SHARD)
    [other] = [each for each in cluster.brokers if each is not zombie]
    put(zombie, "1")
    host, port = zombie.url.removeprefix("http://").split(":")
    with (
        socket.create_connection((host, int(port))) as reading,
        socket.create_connection((host, int(port))) as writing,
    ):
        zombie.send(signal.SIGSTOP)
        path = f"/shards/{SHARD}/v1/topics/{TOPIC}"
        reading.sendall(f"GET {path}/partitions/0/messages HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        body = b'{"value":"late"}'
        head = f"POST {path}/messages HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        writing.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: other.serves(SHARD))
        put(other, "2")
        zombie.send(signal.SIGCONT)
        for connection in (reading, writing):
            status = connection.recv(65536).split(b" ", 2)[1]
            # It may know already who has it, or not.
            assert status in (b"307", b"503")
    assert values(other) == ["1", "2"]
    # It comes again, and gets its share.
    cluster.settle(lambda view: len(owners(view)) == 2)
    assert values(cluster.owner(SHARD)) == ["1", "2"]


def test_shards_are_moved_and_brokers_drained(cluster: ClusterProcesses) -> None:
    cluster.make()
    first, second = cluster.start(), cluster.start()
    cluster.settle(lambda view: len(owners(view)) == 2)
    put(cluster.owner(SHARD), "1")
    target = first if cluster.owner(SHARD) is second else second
    assert cluster.run("move", str(SHARD), target.id).returncode == 0
    view = cluster.settle(lambda view: view["owners"][SHARD]["broker"] == target.id)
    assert view["owners"][SHARD]["wish"] == target.id
    assert values(target) == ["1"]
    assert cluster.run("drain", first.id).returncode == 0
    cluster.settle(lambda view: owners(view) == {second.id})
    assert values(second) == ["1"]
    shown = cluster.run("status")
    assert "draining" in shown.stdout
    assert "none without an owner" in shown.stdout
    assert cluster.run("drain", "--undo", first.id).returncode == 0
    cluster.settle(lambda view: len(owners(view)) == 2)
    assert cluster.run("move", "0", "nobody").returncode == 3
    assert cluster.run("move", "99", first.id).returncode == 3
    assert cluster.run("remove", first.id, "--yes").returncode == 4
    first.end(signal.SIGKILL)
    cluster.settle(lambda view: owners(view) == {second.id})
    assert cluster.run("remove", target.id, "--yes").returncode == (0 if target is first else 4)


def test_the_library_goes_on_through_a_failover_and_stores_nothing_twice(cluster: ClusterProcesses) -> None:
    cluster.make()
    brokers = [cluster.start() for _ in range(3)]
    cluster.settle(lambda view: len(owners(view)) == 3)
    first = cluster.owner(SHARD)
    with quivermq.connect(",".join(each.url for each in brokers)) as mq:
        queue = mq.queue(TOPIC)
        for number in range(5):
            queue.put(b"%d" % number)
        first.end(signal.SIGKILL)
        # The same calls, as if nothing had happened.
        for number in range(5, 10):
            queue.put(b"%d" % number)
        assert [message.value for message in queue.read()] == [b"%d" % number for number in range(10)]
        deliveries = queue.get_many(10)
        queue.ack(deliveries)
        assert sorted(each.value for each in deliveries) == [b"%d" % number for number in range(10)]


def test_brokers_speak_tls_and_want_the_same_keys(cluster: ClusterProcesses) -> None:
    authority = trustme.CA()
    certificate, ca, keys = (cluster.path / name for name in ("chain.pem", "ca.pem", "keys.json"))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    authority.cert_pem.write_to_path(ca)
    key = create_key(cluster.path, "admin", file=keys).text
    cluster.make()
    options = ("--tls-certificate", str(certificate), "--keys", str(keys))
    brokers = [cluster.start(*options, SSL_CERT_FILE=str(ca)) for _ in range(2)]
    tls = ssl.create_default_context(cafile=ca)

    def ask(broker: BrokerProcess, path: str, body: bytes | None = None) -> Any:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{broker.url}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=20, context=tls) as answer:
            return json.load(answer)

    wait_until(lambda: len(owners(ask(brokers[0], "/v1/cluster"))) == 2)
    # One of the two has to ask the other for it.
    for number, broker in enumerate(brokers):
        assert broker.url.startswith("https://")
        put = ask(broker, f"/v1/topics/{TOPIC}/messages", b'{"value":"x"}')
        assert put["offset"] == number
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{brokers[0].url}/v1/topics", timeout=20, context=tls)


def test_a_wide_topic_is_decided_once(cluster: ClusterProcesses) -> None:
    cluster.make()
    broker = cluster.start()
    cluster.settle()
    status, answer = broker.ask("/v1/cluster/topics", "POST", {"name": "wide", "spread": 2})
    assert status == 200, answer
    assert len(answer["shards"]) == 2
    assert broker.ask("/v1/cluster/topics", "POST", {"name": "wide", "spread": 2}) == (200, answer)
    status, refused = broker.ask("/v1/cluster/topics", "POST", {"name": "wide", "spread": 3})
    assert (status, refused["error"]["code"]) == (409, "topic_exists")
    wait_until(lambda: broker.view()["topics"])
    assert broker.view()["topics"] == {"wide": {"spread": 2, "shards": answer["shards"]}}
    status, refused = broker.ask("/v1/topics/wide/messages", "POST", {"value": "x"})
    assert (status, refused["error"]["code"]) == (501, "not_implemented")
    assert broker.ask("/v1/cluster/topics/wide", "DELETE")[0] == 204
    wait_until(lambda: not broker.view()["topics"])


def test_what_is_wrong_is_said(cluster: ClusterProcesses) -> None:
    def refused(*arguments: str, **environment: str) -> str:
        process, log = cluster.launch(*arguments, **environment)
        assert process.wait(60) != 0
        return log.read_text()

    assert "quiver cluster init" in refused()
    cluster.make()
    assert cluster.run("init", "--bucket", cluster.bucket, "--shards", "5").returncode == 4
    assert f"not in {cluster.bucket}-2" in refused("--bucket", f"{cluster.bucket}-2")
    assert "does not answer" in refused("--cluster", "etcd://127.0.0.1:1/x")
    assert "the same keys" in refused("--host", "0.0.0.0")
    broker = cluster.start()
    assert f"there is a broker {broker.id}" in refused(QUIVER_CLUSTER__ID=broker.id)
    assert broker.ask("/shards/99/v1/topics")[0] == 404
    assert broker.ask("/v1/events")[0] == 501
