"""A share of a wide topic: some of its partitions, by the numbers that all shards know them by."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from unit.engine.store import DATA, Store, drain, refused, values

import quivermq
from quivermq.engine import engine_of
from quivermq.frame import encode
from quivermq.model.operations import CreateTopic
from quivermq.reading import reader_of
from quivermq.topic.routing import murmur3

PARTITIONS = 6


@pytest.fixture
def share() -> Iterator[Store]:
    """The second share of three: partitions 1 and 4."""
    store = Store(FaultyDisk())
    make_wide(store)
    yield store
    store.close()


def make_wide(store: Store, topic: str = "orders", **more: object) -> None:
    settings = {"partitions": PARTITIONS, "spread": 3, "spread_index": 1, **more}
    engine_of(store.engine).perform(CreateTopic(topic, False, settings))


def key_for(partition: int) -> bytes:
    return next(key for n in range(1000) if murmur3(key := b"k%d" % n) % PARTITIONS == partition)


def journals(store: Store) -> set[str]:
    return {path.parts[-2] for path in store.files() if path.parts[2:4] == ("groups", "default")}


def test_a_directory_alone_has_no_wide_topics(store: Store) -> None:
    def make() -> None:
        store.engine.create_topic("orders", partitions=4, spread=2)

    error = refused(store, make)
    assert isinstance(error, quivermq.InvalidSettings)
    assert "needs a cluster" in str(error)
    store.engine.create_topic("orders", partitions=4, spread=1)
    assert store.engine.topic("orders").settings.spread == 1


def test_messages_without_a_key_go_to_the_own_partitions_in_turn(share: Store) -> None:
    queue = share.engine.queue("orders")
    assert [queue.put(b"x").partition for _ in range(4)] == [1, 4, 1, 4]
    assert {put.partition for put in queue.put_many([b"x"] * 5)} == {1, 4}
    assert len(drain(queue)) == 9


def test_a_share_has_no_files_of_other_partitions(share: Store) -> None:
    queue = share.engine.queue("orders")
    queue.put_many([b"x"] * 4)
    drain(queue)
    engine_of(share.engine).catalog.get("orders").group("default").pause(True)
    share.reopen()
    names = set(share.disk.names(DATA / "topics" / "orders"))
    assert {name for name in names if name.startswith("p")} == {"p1", "p4"}
    assert journals(share) == {"p1", "p4"}


@pytest.mark.parametrize("partition", [0, 2, 3, 5])
def test_what_belongs_on_another_shard_is_refused_by_name(share: Store, partition: int) -> None:
    queue = share.engine.queue("orders")
    for call in (
        lambda: queue.put(b"x", partition=partition),
        lambda: queue.put(b"x", key=key_for(partition)),
        lambda: queue.put_many([b"x", quivermq.Message(b"y", key_for(partition))]),
        lambda: queue.put_many(
            [quivermq.Message(b"x", partition=1), quivermq.Message(b"y", partition=partition)]
        ),
        lambda: queue.put_frame(bytes(encode([b"x"], timestamp=1)), partition=partition),
        lambda: queue.read(partition),
        lambda: queue.seek(offset=0, partition=partition),
    ):
        error = refused(share, call)
        assert isinstance(error, quivermq.InvalidRequest)
        assert f"partition {partition} is on another shard" in str(error)


def test_keys_and_ids_go_where_all_shards_say(share: Store) -> None:
    queue = share.engine.queue("orders")
    assert queue.put(b"x", key=key_for(4)).partition == 4
    put = queue.put(b"x", dedup_id=key_for(1).decode())
    assert put.partition == 1
    assert queue.put(b"again", dedup_id=key_for(1).decode()) == put._replace(duplicate=True)
    error = refused(share, lambda: queue.put(b"x", dedup_id=key_for(2).decode()))
    assert "partition 2 is on another shard" in str(error)


def test_progress_and_settings_survive(share: Store) -> None:
    queue = share.engine.queue("orders")
    queue.put_many([b"%d" % n for n in range(4)])
    first = queue.get()
    assert first is not None
    first.ack()
    share.kill()
    queue = share.engine.queue("orders")
    assert len(drain(queue)) == 3
    assert share.engine.topic("orders").settings.own_partitions == range(1, 6, 3)


def test_it_grows_by_its_share(share: Store) -> None:
    queue = share.engine.queue("orders")
    queue.put(b"x")
    taken = queue.get()
    assert taken is not None
    share.engine.alter_topic("orders", partitions=8)
    assert {queue.put(b"new").partition for _ in range(3)} == {1, 4, 7}
    taken.ack()
    assert len(drain(queue)) == 3


def test_dead_letters_stay_in_the_partition_of_their_message(share: Store) -> None:
    queue = share.engine.queue("orders")
    put = queue.put(b"x", partition=4)
    message = queue.get()
    assert message is not None
    message.reject("no")
    [letter] = queue.dead_letters()
    assert (letter.partition, letter.offset) == (put.partition, put.offset)
    assert share.engine.queue("orders.dlq").read(4)[0].value == b"x"
    share.reopen()
    queue = share.engine.queue("orders")
    assert queue.redrive() == 1
    again = queue.get()
    assert again is not None
    assert (again.value, again.partition) == (b"x", 4)


def test_dead_letters_outlive_their_topic_and_keep_their_share(share: Store) -> None:
    queue = share.engine.queue("orders")
    queue.put(b"x", partition=4)
    message = queue.get()
    assert message is not None
    message.reject("no")
    share.engine.delete_topic("orders")
    share.engine.alter_topic("orders.dlq", lease_ms=5000)
    share.reopen()
    assert values(share.engine.queue("orders").dead_letters()) == [b"x"]
    error = refused(share, lambda: share.engine.create_topic("orders"))
    assert "spread=3" in str(error)


def test_members_share_the_own_partitions(share: Store) -> None:
    members = engine_of(share.engine).members
    joined = members.join("default", ["orders"])
    synced = members.sync("default", joined.member_id, joined.generation, [])
    assert [each.partition for each in synced.assignment] == [1, 4]


def test_figures_are_those_of_the_own_partitions(share: Store) -> None:
    queue = share.engine.queue("orders")
    queue.put_many([b"x"] * 4)
    assert queue.stats().pending == 4
    extent = engine_of(share.engine).extent("orders")
    assert [lane.partition for lane in extent.lanes] == [1, 4]
    assert share.engine.stats().topics["orders"].partitions == PARTITIONS


def test_a_closed_share_knows_its_partitions(share: Store) -> None:
    for number in range(100):
        share.engine.create_topic(f"t{number}")
    share.reopen()
    table = engine_of(share.engine).catalog.table
    assert table.is_closed("orders")
    assert table.partitions_of("orders") == range(1, 6, 3)


def test_a_reader_of_the_directory_finds_its_lanes(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        engine_of(mq).perform(
            CreateTopic("orders", False, {"partitions": 4, "spread": 2, "spread_index": 1})
        )
        mq.queue("orders").put_many([b"x"] * 2)
    reader = reader_of(tmp_path)
    assert [lane.partition for lane in reader.lanes("orders")] == [1, 3]


def test_no_two_shares_give_a_delayed_message_the_same_id() -> None:
    ids: list[str] = []
    for index in range(3):
        store = Store(FaultyDisk())
        make_wide(store, spread_index=index)
        due_us = store.clock.now_us() + 3_600_000_000
        for hours in range(3):
            ids += [
                put.scheduled_id or ""
                for put in store.engine.queue("orders").put_many(
                    [quivermq.Message(b"x", deliver_at=due_us + hours * 3_600_000_000)] * 2
                )
            ]
            store.reopen()
        store.close()
    assert len(set(ids)) == 3 * 3 * 2
