"""A cluster over HTTP: its calls follow the shards wherever these go, and nothing is stored twice."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker import serving
from support.routed_shards import BROKERS, RoutedPool, RoutedShards, serving_shards
from support.threads import PATIENCE_S

import quivermq
from quivermq import Message
from quivermq.client.consuming.consumer import RemoteConsumer
from quivermq.client.core.call import Answer, Broken, Call
from quivermq.cluster.placement import shard_of

A, B = BROKERS
SHARD = shard_of("orders", 3)


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[RoutedShards]:
    with serving_shards(tmp_path) as shards:
        for shard in shards.owners:
            shards.move(shard, A)
        yield shards


@pytest.fixture
def mq(shards: RoutedShards) -> Iterator[quivermq.Connection]:
    with shards.connect(backoff_ms=1, backoff_ms_max=1) as mq:
        yield mq


def values(messages: Any) -> list[bytes]:
    return sorted(message.value for message in messages)


def dying(shards: RoutedShards, mq: quivermq.Connection, path: str, *, is_done: bool) -> list[str]:
    """Let the owner die in the next call of that path, after it was carried out or before; B takes over."""
    died: list[str] = []

    def interfere(url: str, shard: int, call: Call) -> Answer | Broken | None:
        if died or not call.path.endswith(path):
            return None
        died.append(url)
        if is_done:
            pool = mq.backend.shards.pool(url, is_prompt=False)  # type: ignore[attr-defined]
            assert isinstance(pool, RoutedPool)
            done = pool.pass_on(shard, call)
            assert isinstance(done, Answer)
            assert done.status == 200, done.body
        shards.kill(url)
        for each in shards.owners:
            shards.move(each, B)
        return Broken("the connection was closed", was_sent=True)

    shards.interfere = interfere
    return died


def test_one_request_tells_the_map_and_every_call_goes_to_the_owner(
    shards: RoutedShards, mq: quivermq.Connection
) -> None:
    queue = mq.queue("orders")
    for number in range(5):
        queue.put(b"%d" % number)
    queue.ack(queue.get_many(5))
    assert [path for _, path in shards.calls].count("/v1/cluster") == 1
    assert {url for url, path in shards.calls if path.startswith(f"/shards/{SHARD}/")} == {A}


def test_a_shard_that_has_moved_is_followed(shards: RoutedShards, mq: quivermq.Connection) -> None:
    queue = mq.queue("orders")
    queue.put(b"before")
    shards.move(SHARD, B)
    queue.put(b"after")
    assert values(queue.get_many(5)) == [b"after", b"before"]


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_put_whose_answer_was_lost_is_stored_once(
    shards: RoutedShards, mq: quivermq.Connection, is_done: bool, partitions: int
) -> None:
    mq.create_topic("orders", partitions=partitions)
    queue = mq.queue("orders")
    queue.put(b"first")
    died = dying(shards, mq, "/messages", is_done=is_done)
    put = queue.put(b"second", key=b"k")
    assert died == [A]
    assert not put.duplicate
    assert values(queue.get_many(9)) == [b"first", b"second"]
    assert queue.read(put.partition, put.offset, 1)[0].value == b"second"
    queue.put(b"third", key=b"k")
    assert values(queue.get_many(9)) == [b"third"]


@pytest.mark.parametrize("is_done", [True, False])
def test_many_whose_answer_was_lost_are_stored_once(
    shards: RoutedShards, mq: quivermq.Connection, is_done: bool
) -> None:
    mq.create_topic("orders", partitions=6, spread=3)
    queue = mq.queue("orders")
    died = dying(shards, mq, "/messages", is_done=is_done)
    puts = queue.put_many([Message(b"%03d" % n, key=b"k%d" % n) for n in range(100)])
    assert died == [A]
    assert not any(put.duplicate for put in puts)
    for number, put in enumerate(puts):
        assert queue.read(put.partition, put.offset, 1)[0].value == b"%03d" % number
    assert values(queue.get_many(200)) == [b"%03d" % n for n in range(100)]


def test_a_lease_outlives_its_broker(shards: RoutedShards, mq: quivermq.Connection) -> None:
    queue = mq.queue("orders")
    queue.put_many([b"a", b"b"])
    one, two = queue.get_many(2)
    dying(shards, mq, "/ack", is_done=False)
    one.ack()
    queue.ack([two.receipt])
    assert queue.stats().backlog == 0


def test_each_delivery_of_a_wide_topic_outlives_its_broker(
    shards: RoutedShards, mq: quivermq.Connection
) -> None:
    mq.create_topic("orders", partitions=3, spread=3)
    queue = mq.queue("orders")
    queue.put_many([Message(b"%d" % n, partition=n) for n in range(3)])
    held = queue.get_many(3)
    dying(shards, mq, "/ack", is_done=False)
    for message in held:
        message.ack()
    assert queue.stats().backlog == 0


def test_what_a_lost_answer_had_leased_comes_again(shards: RoutedShards, mq: quivermq.Connection) -> None:
    queue = mq.queue("orders")
    queue.put(b"x")
    died = dying(shards, mq, "/receive", is_done=True)
    message = queue.get(timeout=PATIENCE_S)
    assert died == [A]
    assert message is not None
    assert (message.value, message.attempt) == (b"x", 1)


def test_a_call_waits_for_the_next_owner(shards: RoutedShards, mq: quivermq.Connection) -> None:
    queue = mq.queue("orders")
    queue.put(b"before")
    shards.kill(A)
    asked = threading.Event()
    document = shards.document

    def asks() -> dict[str, Any]:
        asked.set()
        return document()

    shards.document = asks  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: queue.put(b"after"), daemon=True)
    thread.start()
    assert asked.wait(PATIENCE_S)
    for shard in shards.owners:
        shards.move(shard, B)
    thread.join(PATIENCE_S)
    assert values(queue.get_many(5)) == [b"after", b"before"]


def test_patience_ends(shards: RoutedShards) -> None:
    with shards.connect(failover_ms=1, retries=0) as mq:
        queue = mq.queue("orders")
        queue.put(b"x")
        shards.move(SHARD, None)
        with pytest.raises(quivermq.Unavailable):
            queue.put(b"y")
        with pytest.raises(quivermq.Unavailable):
            queue.get()


def test_a_delayed_message_is_not_sent_twice(shards: RoutedShards, mq: quivermq.Connection) -> None:
    queue = mq.queue("orders")
    queue.put(b"x")
    dying(shards, mq, "/messages", is_done=True)
    with pytest.raises(quivermq.Unreachable):
        queue.put(b"late", delay=3600)
    assert len(queue.scheduled()) == 1


def test_a_wide_topic_waits_for_all_shards_over_http(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", partitions=3, spread=3)
    queue, got = mq.queue("orders"), []
    for partition in (2, 0, 1):
        thread = threading.Thread(target=lambda: got.append(queue.get(timeout=PATIENCE_S)), daemon=True)
        thread.start()
        queue.put(b"%d" % partition, partition=partition)
        thread.join(PATIENCE_S)
    assert [message.value for message in got if message is not None] == [b"2", b"0", b"1"]


def test_a_broker_alone_is_no_cluster(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, quivermq.connect(f"{broker.url},{broker.url}") as mq:
        queue = mq.queue("orders")
        with pytest.raises(quivermq.InvalidRequest, match="a broker alone"):
            queue.put(b"x")


def test_nobody_there_is_told() -> None:
    with quivermq.connect("http://127.0.0.1:1,http://127.0.0.1:2", retries=0) as mq:
        queue = mq.queue("orders")
        with pytest.raises(quivermq.Unreachable):
            queue.put(b"x")


def test_a_producer_reaches_every_shard_through_a_failover(
    shards: RoutedShards, mq: quivermq.Connection
) -> None:
    mq.create_topic("orders", partitions=6, spread=3)
    died = dying(shards, mq, "/messages", is_done=True)
    with mq.producer("orders") as producer:
        sent = [producer.send(b"%03d" % n, key=b"k%d" % n) for n in range(100)]
    assert died == [A]
    assert {each.result().partition for each in sent if each is not None} == set(range(6))
    assert values(mq.queue("orders").get_many(200)) == [b"%03d" % n for n in range(100)]


def polled(consumer: RemoteConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += values(consumer.poll(PATIENCE_S))
    return sorted(found)


def test_a_consumer_reads_every_shard_and_goes_on_behind_a_failover(
    shards: RoutedShards, mq: quivermq.Connection
) -> None:
    mq.create_topic("orders", partitions=6, spread=3)
    queue = mq.queue("orders")
    queue.put_many([Message(b"%03d" % n, partition=n % 6) for n in range(60)])
    with mq.consumer("orders", "billing", auto_commit_ms=None) as consumer:
        assert polled(consumer, 60) == [b"%03d" % n for n in range(60)]
        assert [each.partition for each in consumer.assignment] == list(range(6))
        consumer.commit()
        assert set(consumer.lag().values()) == {0}
        shards.kill(A)
        for shard in shards.owners:
            shards.move(shard, B)
        queue.put_many([Message(b"%03d" % n, partition=n % 6) for n in range(60, 120)])
        assert polled(consumer, 60) == [b"%03d" % n for n in range(60, 120)]
        consumer.commit()
    with mq.consumer("orders", "billing") as consumer:
        queue.put(b"last", partition=5)
        assert polled(consumer, 1) == [b"last"]


def test_two_consumers_share_the_partitions_of_each_shard(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", partitions=6, spread=3)
    mq.queue("orders").put_many([Message(b"%d" % n, partition=n) for n in range(6)])
    with (
        mq.consumer("orders", "billing", heartbeat_ms=20) as one,
        mq.consumer("orders", "billing", heartbeat_ms=20) as two,
    ):
        while not (len(one.assignment) == len(two.assignment) == 3):
            one.poll(0.01)
            two.poll(0.01)
        assert not {*one.assignment} & {*two.assignment}
