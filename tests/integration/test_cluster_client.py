"""What users see of a cluster of real brokers: not where its shards are, nor that a broker dies."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.cluster import ClusterProcesses, running_etcd
from support.threads import PATIENCE_S

import quivermq
from quivermq import Message, aio

PARTITIONS = 6


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd") / "data") as url:
        yield url


@pytest.fixture
def cluster(etcd: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ClusterProcesses]:
    with ExitStack() as until:
        cluster = ClusterProcesses(etcd, request.node.name, tmp_path, until)
        cluster.make()
        for _ in range(3):
            cluster.start()
        cluster.settle(lambda view: len({owner["broker"] for owner in view["owners"]}) == 3)
        yield cluster


def urls(cluster: ClusterProcesses) -> str:
    return ",".join(broker.url for broker in cluster.brokers)


@pytest.fixture
def mq(cluster: ClusterProcesses) -> Iterator[quivermq.Connection]:
    with quivermq.connect(urls(cluster)) as mq:
        yield mq


def values(messages: Any) -> list[bytes]:
    return sorted(message.value for message in messages)


def kill_owner(cluster: ClusterProcesses, mq: quivermq.Connection) -> None:
    """Kill a broker that has a share of the wide topic."""
    shards = mq.backend.shards.map()  # type: ignore[attr-defined]
    cluster.owner(shards.topics["orders"][0]).end(signal.SIGKILL)


def drain(queue: quivermq.Queue, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        messages = queue.get_many(1000, timeout=PATIENCE_S)
        assert messages, found
        queue.ack(messages)
        found += values(messages)
    return sorted(found)


def test_puts_and_gets_go_on_while_a_broker_dies(
    cluster: ClusterProcesses, mq: quivermq.Connection
) -> None:
    mq.create_topic("orders", partitions=PARTITIONS, spread=3)
    queue = mq.queue("orders")
    begun, failures = threading.Event(), list[BaseException]()

    def put_all(writer: int) -> None:
        try:
            for number in range(40):
                queue.put(b"%d-%d" % (writer, number), key=b"k%d" % (number % 12))
                queue.put_many(
                    [Message(b"%d-%d-%d" % (writer, number, n), key=b"k%d" % n) for n in range(5)]
                )
                if number == 5:
                    begun.set()
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=put_all, args=(n,), daemon=True) for n in range(4)]
    for writer in writers:
        writer.start()
    assert begun.wait(PATIENCE_S)
    kill_owner(cluster, mq)
    for writer in writers:
        writer.join(PATIENCE_S)
    assert failures == []
    wanted = [b"%d-%d" % (w, n) for w in range(4) for n in range(40)]
    wanted += [b"%d-%d-%d" % (w, n, m) for w in range(4) for n in range(40) for m in range(5)]
    # All of them, and none twice.
    assert drain(queue, len(wanted)) == sorted(wanted)
    assert queue.get() is None
    assert queue.stats().backlog == 0


def test_a_lease_outlives_the_broker_that_gave_it(
    cluster: ClusterProcesses, mq: quivermq.Connection
) -> None:
    mq.create_topic("orders", partitions=PARTITIONS, spread=3)
    queue = mq.queue("orders")
    queue.put_many([Message(b"%d" % n, partition=n % PARTITIONS) for n in range(24)])
    held = queue.get_many(24, lease=600)
    assert len(held) == 24
    kill_owner(cluster, mq)
    for message in held[:12]:
        message.ack()
    queue.ack([message.receipt for message in held[12:]])
    assert queue.stats().backlog == 0


def test_members_of_a_group_go_on_behind_what_they_committed(
    cluster: ClusterProcesses, mq: quivermq.Connection
) -> None:
    mq.create_topic("orders", partitions=PARTITIONS, spread=3)
    queue = mq.queue("orders")
    with mq.producer("orders") as producer:
        for number in range(60):
            producer.send(b"%03d" % number, partition=number % PARTITIONS)
    with mq.consumer("orders", "billing", auto_commit_ms=None) as consumer:
        found: list[bytes] = []
        while len(found) < 60:
            found += values(consumer.poll(1.0))
        assert sorted(found) == [b"%03d" % n for n in range(60)]
        consumer.commit()
        kill_owner(cluster, mq)
        queue.put_many([Message(b"%03d" % n, partition=n % PARTITIONS) for n in range(60, 90)])
        found = []
        while len(found) < 30:
            found += values(consumer.poll(1.0))
        assert sorted(found) == [b"%03d" % n for n in range(60, 90)]


def test_topics_of_all_shards_are_one_queue(cluster: ClusterProcesses, mq: quivermq.Connection) -> None:
    names = [f"events.{number}" for number in range(8)]
    for name in names:
        mq.queue(name).put(name.encode())
    assert mq.topics() == names
    events = mq.queue("events.*")
    assert drain(events, len(names)) == [name.encode() for name in names]
    assert sorted(mq.stats().topics) == names
    mq.sync()
    assert mq.verify().is_sound


def test_asyncio_has_the_same(cluster: ClusterProcesses) -> None:
    async def use() -> int:
        async with await aio.connect(urls(cluster)) as mq:
            await mq.create_topic("orders", partitions=PARTITIONS, spread=3)
            queue = mq.queue("orders")
            await queue.put_many([b"%d" % number for number in range(10)])
            found = await queue.get_many(10, timeout=PATIENCE_S)
            await queue.ack(found)
            return len(found) + (await queue.stats()).backlog

    assert asyncio.run(use()) == 10
