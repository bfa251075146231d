"""Putting: what comes back from it, where messages go, and what they carry."""

from datetime import UTC, datetime
from typing import Any

import pytest
from support.threads import start
from unit.engine.store import DATA, Store, drain, values

import quivermq
from quivermq.engine import engine_of
from quivermq.topic.routing import murmur3


def test_offsets_count_in_each_partition_and_lane(store: Store) -> None:
    queue = store.queue(partitions=2)
    puts = [queue.put(b"x", partition=p, priority=priority) for p in (0, 1) for priority in ("high", "low")]
    puts += [queue.put(b"y", partition=0, priority="high")]
    assert [(put.partition, put.priority, put.offset) for put in puts] == [
        (0, "high", 0),
        (0, "low", 0),
        (1, "high", 0),
        (1, "low", 0),
        (0, "high", 1),
    ]
    assert {put.topic for put in puts} == {"orders"}


def test_a_put_makes_the_topic_with_the_defaults(store: Store) -> None:
    store.queue("new").put(b"x")
    assert store.engine.topics() == ["new"]
    assert store.engine.topic("new").settings == quivermq.TopicSettings()


def test_a_key_always_goes_to_the_partition_of_its_hash(store: Store) -> None:
    queue = store.queue(partitions=5)
    for key in (b"", b"a", b"customer-17", bytes(1000)):
        expected = murmur3(key) % 5
        assert {queue.put(b"x", key=key, priority=p).partition for p in ("high", "normal")} == {expected}
        assert queue.put_many([quivermq.Message(b"x", key=key)])[0].partition == expected


def test_messages_without_a_key_go_round(store: Store) -> None:
    queue = store.queue(partitions=3)
    assert sorted(queue.put(b"x").partition for _ in range(6)) == [0, 0, 1, 1, 2, 2]
    assert sorted(put.partition for put in queue.put_many([b"x"] * 6)) == [0, 0, 1, 1, 2, 2]


def test_an_explicit_partition_wins_over_the_key(store: Store) -> None:
    queue = store.queue(partitions=3)
    assert {queue.put(b"x", key=b"k", partition=p).partition for p in range(3)} == {0, 1, 2}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 10, 25_000])
def test_the_puts_of_a_batch_tell_where_each_message_is(store: Store, partitions: int, count: int) -> None:
    queue = store.queue(partitions=partitions, durability="os")
    puts = queue.put_many([b"%d" % n for n in range(count)])
    assert len(puts) == count
    by_partition = {p: values(queue.read(partition=p, limit=100_000)) for p in range(partitions)}
    for number, put in enumerate(puts):
        assert put.offset is not None
        assert by_partition[put.partition][put.offset] == b"%d" % number
    assert puts[-1] == puts[count - 1]
    assert puts[:2] == [puts[i] for i in range(min(2, count))]
    with pytest.raises(IndexError):
        puts[count]


def test_a_batch_of_every_kind_keeps_its_order(store: Store) -> None:
    queue = store.queue(partitions=2)
    message = quivermq.Message
    puts = queue.put_many(
        [
            b"plain",
            message(b"high", priority="high"),
            message(b"later", delay=5),
            message(b"once", dedup_id="1"),
            message(b"again", dedup_id="1"),
            message(b"there", partition=1),
            message(b"k", key=b"k", headers={"h": b"1"}, ttl=5, timestamp=7),
        ]
    )
    assert [put.duplicate for put in puts] == [False, False, False, False, True, False, False]
    assert [put.scheduled_id is not None for put in puts] == [False, False, True] + [False] * 4
    assert puts[4].offset == puts[3].offset
    assert puts[1].priority == "high"
    assert puts[5].partition == 1
    assert sorted(drain(queue)) == sorted([b"plain", b"high", b"once", b"there", b"k"])


def test_what_was_checked_is_stored_as_it_is(store: Store) -> None:
    queue = engine_of(store.engine).queue("orders")
    checked = [queue.check(quivermq.Message(b"a", b"k", {"h": b"1"})), queue.check(b"b")]
    assert store.engine.topics() == []
    assert [put.offset for put in queue.put_checked(checked)] == [0, 1]
    assert [(each.value, each.key, each.headers) for each in store.queue().read()] == [
        (b"a", b"k", {"h": b"1"}),
        (b"b", None, {}),
    ]


def test_what_was_checked_for_a_topic_of_before_is_checked_again(store: Store) -> None:
    store.queue(partitions=3)
    queue = engine_of(store.engine).queue("orders")
    checked = [queue.check(quivermq.Message(b"a", partition=2)), queue.check(b"b")]
    store.engine.delete_topic("orders")
    store.queue(partitions=2)
    with pytest.raises(quivermq.InvalidRequest, match="partition"):
        queue.put_checked(checked)
    assert [put.offset for put in queue.put_checked(checked[1:])] == [0]


def test_an_empty_batch_is_nothing(store: Store) -> None:
    assert list(store.queue().put_many([])) == []
    assert list(store.queue().put_many(iter([]))) == []


def test_a_batch_may_come_from_anything_that_can_be_walked_over(store: Store) -> None:
    queue = store.queue()
    queue.put_many(b"%d" % n for n in range(2))
    queue.put_many((b"2", b"3"))
    queue.put_many({b"4": None})
    assert drain(queue) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_batch_whose_source_fails_stores_nothing(store: Store) -> None:
    def source() -> Any:
        yield b"first"
        raise LookupError("no more")

    queue = store.queue(partitions=1)
    with pytest.raises(LookupError):
        queue.put_many(source())
    assert drain(queue) == []


def test_a_large_batch_of_large_messages_fits(store: Store) -> None:
    queue = store.queue(durability="os")
    messages = [bytes([n]) * 1_000_000 for n in range(20)]
    queue.put_many(messages)
    queue.put_many([quivermq.Message(value, key=b"k") for value in messages])
    assert drain(queue) == messages * 2


@pytest.mark.parametrize("size", [2 * 1024 * 1024, 0])
def test_a_message_of_the_greatest_size_comes_back(store: Store, size: int) -> None:
    queue = store.queue()
    queue.put(bytes(size))
    assert drain(queue) == [bytes(size)]


def test_what_a_message_carries_comes_back(store: Store) -> None:
    queue = store.queue()
    headers = {"": b"", "ü": b"\x00\xff", "long": bytes(5000)}
    queue.put(b"\x00", key=b"", headers=headers, timestamp=1_600_000_000_000_000, priority="low")
    message = queue.get()
    assert message is not None
    assert (message.value, message.key, message.headers) == (b"\x00", b"", headers)
    assert (message.timestamp, message.priority) == (1_600_000_000_000_000, "low")


def test_a_message_has_the_time_at_which_it_was_put(store: Store) -> None:
    queue = store.queue()
    for put in (lambda: queue.put(b"x"), lambda: queue.put(b"x", key=b"k"), lambda: queue.put_many([b"x"])):
        store.clock.advance(1)
        put()
        message = queue.pop()
        assert message is not None
        assert message.timestamp == store.clock.now_us()


@pytest.mark.parametrize(
    "given", [1_600_000_000_500_000, 1_600_000_000.5, datetime(2020, 9, 13, 12, 26, 40, 500_000, UTC)]
)
def test_a_timestamp_may_be_given_in_three_ways(store: Store, given: Any) -> None:
    queue = store.queue()
    queue.put(b"x", timestamp=given)
    assert queue.read()[0].timestamp == 1_600_000_000_500_000


@pytest.mark.parametrize("durability", ["fsync", "os", "buffered"])
def test_what_was_put_is_there_at_once_whatever_the_durability(store: Store, durability: Any) -> None:
    queue = store.queue(durability=durability)
    assert queue.put(b"1").offset == 0
    assert queue.put(b"2", key=b"k", durability="buffered").offset == 1
    assert queue.put_many([b"3"], durability="os")[0].offset == 2
    assert queue.put(b"4", durability="fsync").offset == 3
    assert values(queue.read()) == [b"1", b"2", b"3", b"4"]
    assert drain(queue) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(("durability", "survives"), [("fsync", True), ("os", True), ("buffered", False)])
def test_what_a_killed_process_leaves(store: Store, durability: Any, survives: bool) -> None:
    store.engine.create_topic("orders", durability="os")
    store.queue().put(b"x", durability=durability)
    engine = store.kill()
    assert drain(engine.queue("orders")) == ([b"x"] if survives else [])


def test_a_call_may_ask_for_more_than_its_topic(store: Store) -> None:
    queue = store.queue(durability="buffered")
    queue.put(b"safe", durability="fsync")
    store.disk.stop()
    engine = store.open_again(store.disk.after_power_loss(keep="nothing"))
    assert drain(engine.queue("orders")) == [b"safe"]


def test_a_full_disk_refuses_a_put_whole(store: Store) -> None:
    queue = store.queue(durability="os")
    queue.put(b"first")
    store.disk.fill_after(50)
    with pytest.raises(quivermq.DiskFull):
        queue.put_many([bytes(500)] * 3)
    store.disk.fill_after(None)
    queue.put(b"second")
    assert drain(queue) == [b"first", b"second"]


def test_many_threads_put_into_a_new_topic(mq: quivermq.Connection) -> None:
    futures = [start(lambda n=n: mq.queue("new").put(b"%d" % n)) for n in range(8)]  # type: ignore[misc]
    offsets = sorted(str(future.result(60).offset) for future in futures)
    assert offsets == [str(n) for n in range(8)]
    assert sorted(drain(mq.queue("new"))) == [b"%d" % n for n in range(8)]


def test_the_files_of_lanes_come_with_their_first_message(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    assert store.disk.names(DATA / "topics/orders/p0") == ["normal"]
    queue.read(priority="high")
    queue.peek(5)
    queue.stats()
    assert store.disk.names(DATA / "topics/orders/p0") == ["normal"]
