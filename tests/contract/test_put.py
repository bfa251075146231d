"""Putting: one, many, frames, everything a message may have, and everything that is refused."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.wrong import mistakes

import quivermq
from quivermq import Message
from quivermq.frame import encode
from quivermq.model.lanes import PRIORITIES

MOMENT = datetime(2031, 5, 1, 12, tzinfo=UTC)
MOMENT_US = int(MOMENT.timestamp()) * 1_000_000


def test_a_put_says_where_the_message_is(orders: Any) -> None:
    assert orders.put(b"a") == quivermq.Put("orders", 0, "normal", 0)
    assert orders.put(b"b", priority="low") == quivermq.Put("orders", 0, "low", 0)
    assert orders.put(b"c").offset == 1


@pytest.mark.parametrize("value", [b"", b"text", bytes(range(256)), "ü".encode(), bytes(100_000)])
def test_a_value_arrives_as_it_was(orders: Any, value: bytes) -> None:
    orders.put(value)
    orders.put(value, key=b"k")
    orders.put_many([value])
    orders.put_many([Message(value, headers={"a": b""})])
    assert [m.value for m in orders.get_many(10)] == [value] * 4
    assert [m.value for m in orders.read()] == [value] * 4


def test_everything_of_a_message_arrives(orders: Any) -> None:
    orders.put(
        b"v", key=b"\xff\x00", headers={"a": b"1", "ü": b"\xfe"}, priority="high", ttl=60, dedup_id="ä",
        timestamp=MOMENT,
    )  # fmt: skip
    message = orders.get()
    assert (message.value, message.key, message.headers) == (b"v", b"\xff\x00", {"a": b"1", "ü": b"\xfe"})
    assert (message.priority, message.dedup_id, message.timestamp) == ("high", "ä", MOMENT_US)
    assert message.expires_at > 0
    (stored,) = orders.read(priority="high")
    assert isinstance(stored, quivermq.StoredMessage)
    assert stored[:8] == (
        "orders", 0, "high", 0, MOMENT_US, b"\xff\x00", b"v", {"a": b"1", "ü": b"\xfe"}
    )  # fmt: skip
    assert stored.expires_at == message.expires_at


@pytest.mark.parametrize("timestamp", [MOMENT, MOMENT_US, MOMENT.timestamp()])
def test_a_moment_can_be_said_in_three_ways(orders: Any, timestamp: Any) -> None:
    orders.put(b"a", timestamp=timestamp)
    orders.put(b"b", timestamp=timestamp, key=b"k")
    assert [m.timestamp for m in orders.get_many(2)] == [MOMENT_US] * 2


def test_messages_of_a_key_stay_together_and_in_order(mq: Any) -> None:
    mq.create_topic("orders", partitions=4)
    orders = mq.queue("orders")
    puts = orders.put_many([Message(b"%d" % i, key=b"k%d" % (i % 5)) for i in range(50)])
    places = {i % 5: put.partition for i, put in enumerate(puts)}
    assert [put.partition for put in puts] == [places[i % 5] for i in range(50)]
    assert orders.put(b"one more", key=b"k3").partition == places[3]
    for key, partition in places.items():
        stored = [m.value for m in orders.read(partition) if m.key == b"k%d" % key]
        assert stored[:10] == [b"%d" % i for i in range(key, 50, 5)]


def test_many_go_where_each_of_them_would_alone(mq: Any) -> None:
    mq.create_topic("orders", partitions=3)
    orders = mq.queue("orders")
    keys = [b"", b"\xff\x00", "ü".encode(), bytes(100), *(b"customer-%d" % i for i in range(60))]
    alone = [orders.put(b"alone", key=key).partition for key in keys]
    assert {*alone} == {0, 1, 2}
    puts = orders.put_many(
        [
            Message(b"%d" % i, key, {"a": b"%d" % i, "ü": b""}, timestamp=MOMENT)
            for i, key in enumerate(keys)
        ]
    )
    assert [put.partition for put in puts] == alone
    stored = {(p, m.offset): m for p in range(3) for m in orders.read(p)}
    for i, (key, put) in enumerate(zip(keys, puts, strict=True)):
        found = stored[put.partition, put.offset]
        assert (found.value, found.key, found.timestamp) == (b"%d" % i, key, MOMENT_US)
        assert found.headers == {"a": b"%d" % i, "ü": b""}


def test_many_of_several_lanes_are_put(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    orders = mq.queue("orders")
    messages = [
        Message(b"%d" % i, headers={"n": b"1"}, priority=PRIORITIES[i % 3], partition=i % 2)
        for i in range(300)
    ]
    puts = orders.put_many(messages)
    assert puts == [quivermq.Put("orders", i % 2, PRIORITIES[i % 3], i // 6) for i in range(300)]
    assert list(orders.put_many(messages[:3])) == [
        quivermq.Put("orders", i % 2, PRIORITIES[i], 50) for i in range(3)
    ]
    for partition, priority in ((0, "high"), (1, "low")):
        values = [int(m.value) for m in orders.read(partition, priority=priority)]
        assert values[:50] == list(range(values[0], 300, 6))


def test_headers_are_put_without_a_key(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    orders = mq.queue("orders")
    puts = orders.put_many([Message(b"%d" % i, headers={"a": b"%d" % i}) for i in range(50)])
    stored = {(p, m.offset): (m.value, m.headers) for p in range(2) for m in orders.read(p)}
    found = [stored[put.partition, put.offset] for put in puts]
    assert found == [(b"%d" % i, {"a": b"%d" % i}) for i in range(50)]


def test_what_is_too_large_for_a_frame_is_put_all_the_same(orders: Any) -> None:
    messages = [Message(bytes(500_000), key=b"%d" % i) for i in range(10)] + [
        Message(b"x", key=b"y")
    ] * 11_000
    orders.put(b"there is a topic")
    puts = orders.put_many(messages)
    assert [put.offset for put in puts] == list(range(1, 11_011))


def test_a_partition_can_be_named(mq: Any) -> None:
    mq.create_topic("orders", partitions=3)
    orders = mq.queue("orders")
    assert [orders.put(b"x", partition=p).partition for p in (2, 0, 1)] == [2, 0, 1]


@pytest.mark.parametrize("before", [1, 3])
def test_a_key_has_one_partition_also_when_somebody_has_just_added_some(
    mq: Any, ways: Any, before: int
) -> None:
    mq.create_topic("orders", partitions=before)
    orders, key = mq.queue("orders"), b"customer-7"
    orders.put_many([Message(b"x", key=key)] * 2)
    other = ways.open() if "connect" in ways.way else mq
    other.alter_topic("orders", partitions=16)
    one = other.queue("orders").put(b"y", key=key)
    many = orders.put_many([Message(b"z", key=key)] * 3)
    assert [(put.partition, put.offset) for put in many] == [
        (one.partition, one.offset + behind) for behind in (1, 2, 3)
    ]
    assert one.partition >= before, "the test would show nothing"


def test_many_are_put_in_order(orders: Any) -> None:
    puts = orders.put_many([b"%d" % i for i in range(1000)])
    assert [put.offset for put in puts] == list(range(1000))
    assert puts[-1] == quivermq.Put("orders", 0, "normal", 999)
    assert [m.value for m in orders.get_many(1000)] == [b"%d" % i for i in range(1000)]


def test_many_of_all_kinds_are_put(orders: Any) -> None:
    puts = orders.put_many(
        [b"a", Message(b"b", priority="high"), Message(b"c", delay=600), Message(b"d", dedup_id="x"),
         Message(b"e", dedup_id="x")]
    )  # fmt: skip
    assert [put.priority for put in puts] == ["normal", "high", "normal", "normal", "normal"]
    assert [put.duplicate for put in puts] == [False, False, False, False, True]
    assert puts[2].offset is None
    assert puts[4].offset == puts[3].offset
    assert list(orders.put_many([])) == []
    assert list(orders.put_many(iter([b"f"]))) == [quivermq.Put("orders", 0, "normal", 2)]


@pytest.mark.parametrize("more", [{}, {"key": b"k"}, {"delay": 600}], ids=str)
def test_a_put_may_say_how_long_its_id_is_remembered(mq: Any, orders: Any, more: dict[str, Any]) -> None:
    mq.create_topic("orders", dedup_window_ms=0)
    assert not orders.put(b"a", dedup_id="x", **more).duplicate
    first = orders.put(b"b", dedup_id="x", dedup_window=3600, **more)
    assert not first.duplicate
    assert orders.put(b"c", dedup_id="x", **more) == first._replace(duplicate=True)
    assert orders.put(b"d", dedup_id="x", dedup_window=timedelta(hours=2), **more).duplicate
    puts = orders.put_many(
        [
            Message(b"e", dedup_id="x"),
            Message(b"f", dedup_id="y", dedup_window=3600),
            Message(b"g", dedup_id="y"),
            Message(b"h", dedup_id="z"),
            Message(b"i", dedup_id="z"),
        ]
    )
    assert [put.duplicate for put in puts] == [True, False, True, False, False]


def test_a_dedup_id_is_stored_once(orders: Any) -> None:
    first = orders.put(b"a", dedup_id="x")
    assert orders.put(b"b", dedup_id="x", key=b"k") == first._replace(duplicate=True)
    assert orders.stats().pending == 1


def test_the_ttl_of_a_topic_counts_for_many(mq: Any) -> None:
    mq.create_topic("orders", ttl_ms=600_000)
    orders = mq.queue("orders")
    orders.put_many([b"a", b"b"])
    orders.put(b"c")
    assert all(message.expires_at for message in orders.get_many(3))


def test_an_expired_message_is_never_delivered(orders: Any) -> None:
    orders.put(b"mortal", ttl=0.001)
    orders.put(b"eternal", timestamp=1.0)
    expired = time.monotonic() + 0.01
    while time.monotonic() < expired:
        continue
    assert orders.get(timeout=5).value == b"eternal"
    assert orders.get() is None


def frame(*messages: bytes, sequence: int = 0, producer: int = 7) -> bytes:
    sender = quivermq.Producer(producer, 0, sequence)
    return bytes(encode(messages, timestamp=MOMENT_US, producer=sender))


def test_a_frame_is_appended_and_a_repeated_one_recognised(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    orders = mq.queue("orders")
    first = orders.put_frame(frame(b"a", b"b"), partition=1, priority="high")
    assert first == quivermq.Put("orders", 1, "high", 0)
    assert orders.put_frame(frame(b"c", sequence=2), partition=1, priority="high").offset == 2
    again = orders.put_frame(frame(b"a", b"b"), partition=1, priority="high")
    assert again == first._replace(duplicate=True)
    with pytest.raises(quivermq.Conflict):
        orders.put_frame(frame(b"d", sequence=9), partition=1, priority="high")
    assert [m.value for m in orders.get_many(9)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("durability", ["fsync", "os", "buffered"])
def test_a_call_has_its_own_durability(orders: Any, durability: str) -> None:
    orders.put(b"a", durability=durability)
    orders.put(b"b", key=b"k", durability=durability)
    orders.put_many([b"c"], durability=durability)
    orders.put_frame(frame(b"d", producer=0), durability=durability)
    assert [m.value for m in orders.get_many(9)] == [b"a", b"b", b"c", b"d"]


TEXT: Any = "text"
WRONG: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda q: q.put("text"), quivermq.InvalidRequest),
    (lambda q: q.put(None), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", key="text"), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", headers={"a": "text"}), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", headers={5: b"1"}), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", priority="urgent"), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", ttl=0), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", ttl="5"), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", delay=-1), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", delay=1, deliver_at=MOMENT), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", deliver_at=1_700_000_000), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", timestamp=MOMENT.replace(tzinfo=None)), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", dedup_id=""), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", dedup_id="x" * 1025), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", dedup_id="x", dedup_window=0), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", dedup_id="x", dedup_window=-5), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", key=b"k", dedup_id="x", dedup_window=timedelta(0)), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", dedup_id="x", dedup_window="5"), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", dedup_window=5), quivermq.InvalidRequest),
    (lambda q: q.put_many([b"x", Message(b"y", dedup_id="x", dedup_window=0)]), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", partition=1), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", partition="0"), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", durability="maybe"), quivermq.InvalidRequest),
    (lambda q: q.put(bytes(3 * 1024 * 1024)), quivermq.MessageTooLarge),
    (lambda q: q.put(bytes(3 * 1024 * 1024), key=b"k"), quivermq.MessageTooLarge),
    (lambda q: q.put_many([b"x", bytes(3 * 1024 * 1024)]), quivermq.MessageTooLarge),
    (lambda q: q.put_many([b"x", "text"]), quivermq.InvalidRequest),
    (lambda q: q.put_many([b"x", Message(b"y", partition=9)]), quivermq.InvalidRequest),
    (lambda q: q.put_many([Message(b"x", key=b"k"), Message(b"y", key=TEXT)]), quivermq.InvalidRequest),
    (lambda q: q.put_many([Message(b"x", headers={"a": TEXT})]), quivermq.InvalidRequest),
    (lambda q: q.put_many([Message(b"x", partition=9)]), quivermq.InvalidRequest),
    (lambda q: q.put_many([Message(b"x", priority=TEXT)]), quivermq.InvalidRequest),
    (
        lambda q: q.put_many([Message(b"x", partition=i // 20) for i in range(40)]),
        quivermq.InvalidRequest,
    ),
    (
        lambda q: q.put_many([*[Message(b"x", key=b"k")] * 40, Message(bytes(3 * 1024 * 1024), key=b"k")]),
        quivermq.MessageTooLarge,
    ),
    (lambda q: q.put_many(b"bytes"), quivermq.InvalidRequest),
    (lambda q: q.put_many(quivermq.Message(b"alone")), quivermq.InvalidRequest),
    (lambda q: q.put_many([(b"a tuple",)]), quivermq.InvalidRequest),
    (lambda q: q.put_many(5), quivermq.InvalidRequest),
    (lambda q: q.put_frame(b"no frame"), quivermq.InvalidFrame),
    (lambda q: q.put_frame(frame(b"x")), quivermq.InvalidRequest),
    (lambda q: q.put_frame("text"), quivermq.InvalidRequest),
]


def test_what_is_wrong_is_refused_and_nothing_stored(orders: Any) -> None:
    orders.put(b"first")
    assert mistakes(WRONG, orders) == []
    assert orders.stats().pending == 1


def test_a_full_backlog_refuses_at_once(mq: Any) -> None:
    mq.create_topic("orders", backlog_messages_max=2)
    orders = mq.queue("orders")
    orders.put_many([b"a", b"b"])
    calls: list[Callable[[], Any]] = [
        lambda: orders.put(b"c"),
        lambda: orders.put_many([b"c"]),
        lambda: orders.put(b"c", key=b"k"),
        lambda: orders.put_many([Message(b"c", key=b"k")]),
    ]
    for call in calls:
        with pytest.raises(quivermq.Overloaded) as caught:
            call()
        assert (caught.value.topic, caught.value.limit) == ("orders", 2)
    orders.pop()
    assert orders.put(b"c").offset == 2


def test_a_full_backlog_takes_nothing_of_many(mq: Any) -> None:
    mq.create_topic("orders", partitions=2, backlog_messages_max=50)
    orders = mq.queue("orders")
    with pytest.raises(quivermq.Overloaded):
        orders.put_many([Message(b"x", partition=i % 2) for i in range(60)])
    assert orders.stats().pending == 0


def test_nothing_is_put_into_a_pattern(mq: Any) -> None:
    events = mq.queue("events.*")
    calls: list[Callable[[], Any]] = [
        lambda: events.put(b"x"),
        lambda: events.put_many([b"x"]),
        lambda: events.put_frame(b"x"),
    ]
    for call in calls:
        with pytest.raises(quivermq.InvalidName):
            call()
