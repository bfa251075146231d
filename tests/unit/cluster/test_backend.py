"""A cluster over three engines: what goes where, and what several shards say together."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.local_shards import SHARDS, LocalShards
from support.threads import PATIENCE_S

import quivermq
from quivermq import Message
from quivermq.cluster.backend import ClusterBackend
from quivermq.cluster.placement import shard_of, spread_over
from quivermq.engine import Engine, open_engine
from quivermq.errors import Unreachable
from quivermq.model.operations import CreateTopic, DescribeTopic
from quivermq.queue.connection import Connection


class Cluster:
    """A connection to it, and its shards, which a test may look into and take away."""

    def __init__(self, path: Path) -> None:
        settings = quivermq.Settings(storage=quivermq.StorageSettings(durability="os"))
        self.engines: list[Engine] = [open_engine(path / str(shard), settings) for shard in range(SHARDS)]
        self.shards = LocalShards(self.engines, {})
        self.mq = Connection(ClusterBackend(self.shards))

    def on(self, shard: int) -> Connection:
        """One shard alone."""
        return Connection(self.engines[shard])

    def has(self, topic: str) -> list[int]:
        """The shards that have something of a topic."""
        return [shard for shard in range(SHARDS) if topic in self.on(shard).topics()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.mq.close()


def values(messages: Any) -> list[bytes]:
    return sorted(message.value for message in messages)


def test_a_topic_is_on_its_shard_and_its_dead_letters_with_it(cluster: Cluster) -> None:
    for number in range(12):
        queue = cluster.mq.queue(f"t{number}")
        queue.put(b"x")
        message = queue.get()
        assert message is not None
        message.reject()
        own = [shard_of(f"t{number}", SHARDS)]
        assert cluster.has(f"t{number}") == cluster.has(f"t{number}.dlq") == own
    assert len(cluster.mq.topics()) == 24


def test_dead_letters_of_any_suffix_are_with_their_topic(cluster: Cluster) -> None:
    names = [f"t{n}" for n in range(9) if shard_of(f"t{n}", SHARDS) != shard_of(f"t{n}-gone", SHARDS)]
    assert names
    for name in names:
        cluster.mq.create_topic(name, dead_letter_suffix="-gone")
        cluster.mq.queue(name).put(b"x")
        message = cluster.mq.queue(name).get()
        assert message is not None
        message.reject()
        assert cluster.has(f"{name}-gone") == [shard_of(name, SHARDS)]
        assert values(cluster.mq.queue(f"{name}-gone").read()) == [b"x"]


def test_the_partitions_of_a_wide_topic_are_dealt_over_its_shards(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=6, spread=3)
    place = spread_over("orders", 3, SHARDS)
    for index, shard in enumerate(place):
        assert cluster.engines[shard].topic("orders").settings.own_partitions == range(index, 6, 3)
    info = cluster.mq.topic("orders")
    assert (info.partitions, info.settings.spread, info.settings.spread_index) == (6, 3, None)
    queue = cluster.mq.queue("orders")
    for partition in range(6):
        put = queue.put(b"%d" % partition, partition=partition)
        assert (put.partition, put.offset) == (partition, 0)
        assert (
            cluster.on(place[partition % 3]).queue("orders").read(partition)[0].value == b"%d" % partition
        )


def test_a_key_has_one_partition_whatever_it_is_put_by(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=6, spread=3)
    queue = cluster.mq.queue("orders")
    keys = [b"k%d" % n for n in range(40)]
    single = [queue.put(b"x", key=key).partition for key in keys]
    many = queue.put_many([Message(b"y", key) for key in keys])
    assert [put.partition for put in many] == single
    assert set(single) == set(range(6))


def test_an_id_counts_on_the_shard_it_leads_to(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=6, spread=3)
    queue = cluster.mq.queue("orders")
    first = [queue.put(b"x", dedup_id=f"id{n}") for n in range(20)]
    again = queue.put_many([Message(b"y", dedup_id=f"id{n}") for n in range(20)])
    assert [put._replace(duplicate=False) for put in again] == first
    assert all(put.duplicate for put in again)


def test_the_puts_of_many_come_in_their_order(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=5, spread=3)
    queue = cluster.mq.queue("orders")
    for messages in (
        [b"%d" % n for n in range(50)],
        [Message(b"%d" % n, key=b"k%d" % (n % 7)) for n in range(50)],
        [Message(b"%d" % n, partition=n % 5) for n in range(50)],
        [b"7"],
    ):
        puts = queue.put_many(messages)
        found = [queue.read(put.partition, put.offset, 1)[0].value for put in puts]
        assert found == [each.value if isinstance(each, Message) else each for each in messages]


def test_nothing_is_stored_of_many_when_one_of_them_is_wrong(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=5, spread=3, message_bytes_max=10)
    queue = cluster.mq.queue("orders")
    for wrong in (Message(b"x", partition=5), b"x" * 11, Message(b"x", priority="higher")):  # type: ignore[arg-type]
        with pytest.raises(quivermq.InvalidRequest):
            queue.put_many([b"x", b"y", b"z", wrong])
    assert queue.stats().pending == 0


class Refusing:
    """A shard whose queues refuse a call once, as one does whose topic was altered meanwhile."""

    def __init__(self, cluster: "Cluster", shard: int) -> None:
        self.cluster = cluster
        self.engine = cluster.engines[shard]
        self.is_done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def queue(self, topic: str, group: str) -> Any:
        queue = self.engine.queue(topic, group)
        put_many = queue.put_many

        def refuse(*arguments: Any) -> Any:
            if self.is_done:
                return put_many(*arguments)
            self.is_done = True
            for engine in self.cluster.engines:
                Connection(engine).alter_topic(topic, partitions=9)
            raise quivermq.InvalidRequest("it is not as it was")

        vars(queue)["put_many"] = refuse
        return queue


def test_what_one_shard_took_is_not_put_again_when_another_has_to_be_asked_anew(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=6, spread=3)
    shard = cluster.shards.topics["orders"][1]
    cluster.shards.backends[shard] = Refusing(cluster, shard)
    queue = cluster.mq.queue("orders")
    puts = queue.put_many([Message(b"%02d" % n, partition=n % 6) for n in range(30)])
    assert [put.partition for put in puts] == [n % 6 for n in range(30)]
    assert values(queue.get_many(100)) == [b"%02d" % n for n in range(30)]


def test_a_wide_topic_that_was_made_by_half_is_finished(cluster: Cluster) -> None:
    place = cluster.shards.widen("orders", 3)
    share = {"partitions": 6, "spread": 3, "spread_index": 1, "lease_ms": 5000}
    cluster.engines[place[1]].perform(CreateTopic("orders", False, share))
    cluster.mq.queue("orders").put(b"x", partition=0)
    assert cluster.has("orders") == sorted(place)
    settings = [engine.perform(DescribeTopic("orders")).settings for engine in cluster.engines]
    assert {(each.partitions, each.lease_ms) for each in settings} == {(6, 5000)}


def test_one_that_cannot_be_made_leaves_nothing_behind(cluster: Cluster) -> None:
    for settings in ({"partitions": 2, "spread": 3}, {"partitions": 6, "spread": 3, "lease_ms": 0}):
        with pytest.raises(quivermq.InvalidSettings):
            cluster.mq.create_topic("orders", **settings)  # type: ignore[arg-type]
    assert (cluster.mq.topics(), cluster.shards.topics) == ([], {})


def test_a_topic_is_wide_for_as_long_as_its_dead_letters_are_there(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=3, spread=3)
    queue = cluster.mq.queue("orders")
    queue.put_many([b"a", b"b", b"c"])
    queue.reject(queue.get_many(3))
    cluster.mq.delete_topic("orders")
    assert (cluster.has("orders"), list(cluster.shards.topics)) == ([], ["orders"])
    assert values(queue.dead_letters()) == [b"a", b"b", b"c"]
    with pytest.raises(quivermq.TopicExists, match="spread=3"):
        cluster.mq.create_topic("orders", partitions=2, spread=2)
    cluster.mq.delete_topic("orders.dlq")
    assert cluster.shards.topics == {}
    cluster.mq.create_topic("orders", partitions=2, spread=2)
    assert len(cluster.has("orders")) == 2


def test_a_client_learns_that_a_topic_was_made_wide(cluster: Cluster) -> None:
    queue, settler = cluster.mq.queue("orders"), cluster.mq.queue("orders")
    assert queue.get() is None
    other = Connection(ClusterBackend(cluster.shards))
    other.create_topic("orders", partitions=6, spread=3)
    other.queue("orders").put_many([b"%d" % n for n in range(12)])
    settler.ack(queue.get_many(12))
    assert settler.stats().backlog == 0


def test_a_get_waits_for_all_shards_at_once(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=3, spread=3)
    queue, got = cluster.mq.queue("orders"), []
    for partition in (2, 0, 1, 1):
        thread = threading.Thread(target=lambda: got.append(queue.get(timeout=PATIENCE_S)), daemon=True)
        thread.start()
        queue.put(b"%d" % partition, partition=partition)
        thread.join(PATIENCE_S)
    assert [message.value for message in got if message is not None] == [b"2", b"0", b"1", b"1"]


def test_a_pattern_finds_topics_of_all_shards_also_later_ones(cluster: Cluster) -> None:
    names = [f"events.{n}" for n in range(9)]
    assert {shard_of(name, SHARDS) for name in names} == set(range(SHARDS))
    events, got = cluster.mq.queue("events.*"), []
    for name in names:
        thread = threading.Thread(target=lambda: got.append(events.get(timeout=PATIENCE_S)), daemon=True)
        thread.start()
        cluster.mq.queue(name).put(name.encode())
        thread.join(PATIENCE_S)
    assert [message.topic for message in got if message is not None] == names
    events.ack([message for message in got if message is not None])
    assert events.stats().backlog == 0


class Away:
    """A shard that nobody serves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        if name in ("perform", "queue"):
            return self._refuse
        return getattr(self._engine, name)

    def _refuse(self, *_: object) -> Any:
        raise Unreachable("nobody serves it")


def test_a_shard_that_is_away_keeps_nobody_from_the_others(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=3, spread=3)
    queue = cluster.mq.queue("orders")
    queue.put_many([Message(b"%d" % n, partition=n) for n in range(3)])
    place = cluster.shards.topics["orders"]
    cluster.shards.backends[place[1]] = Away(cluster.engines[place[1]])
    other = Connection(ClusterBackend(cluster.shards)).queue("orders")
    assert values(other.get_many(10)) == [b"0", b"2"]
    # But nobody can say that there is nothing.
    with pytest.raises(Unreachable):
        other.get()


def test_a_producer_has_one_epoch_on_all_shards(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=3, spread=3)
    cluster.on(cluster.shards.topics["orders"][2]).begin_producer("orders", 7)
    begun = cluster.mq.begin_producer("orders", 7)
    assert cluster.mq.begin_producer("orders", 7).epoch == begun.epoch + 1
    for engine in cluster.engines:
        assert Connection(engine).begin_producer("orders", 7).epoch == begun.epoch + 2


def test_a_paused_group_is_paused_where_it_has_never_been(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=3, spread=3)
    queue = cluster.mq.queue("orders")
    with pytest.raises(quivermq.GroupNotFound):
        queue.pause()
    queue.put(b"x", partition=0)
    assert cluster.on(cluster.shards.topics["orders"][0]).queue("orders").get() is not None
    queue.pause()
    queue.put(b"y", partition=1)
    assert queue.get() is None
    queue.resume()
    assert values(queue.get_many(5)) == [b"y"]


def test_a_seek_to_an_offset_goes_to_the_nearest_where_it_is_not(cluster: Cluster) -> None:
    cluster.mq.create_topic("orders", partitions=3, spread=3)
    queue = cluster.mq.queue("orders")
    queue.put_many([Message(b"%d" % n, partition=0) for n in range(5)] + [Message(b"other", partition=1)])
    queue.ack(queue.get_many(6))
    queue.seek(offset=3)
    assert values(queue.get_many(10)) == [b"3", b"4"]
    with pytest.raises(quivermq.OffsetOutOfRange):
        queue.seek(offset=6)
