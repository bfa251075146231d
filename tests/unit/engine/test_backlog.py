"""Back-pressure: both limits, both policies, and what counts."""

from typing import Any

import pytest
from support.threads import start
from unit.engine.store import Store, drain, refused, values

import quivermq
from quivermq.model.lanes import priority_of


def test_a_full_backlog_refuses_and_stores_nothing(store: Store) -> None:
    queue = store.queue(backlog_messages_max=3)
    queue.put_many([b"1", b"2"])
    refused_batch = refused(store, lambda: queue.put_many([b"3", b"4"]))
    assert isinstance(refused_batch, quivermq.Overloaded)
    assert (refused_batch.topic, refused_batch.setting) == ("orders", "backlog_messages_max")
    assert (refused_batch.limit, refused_batch.retryable) == (3, True)
    queue.put(b"3")
    for put in (
        lambda: queue.put(b"4"),
        lambda: queue.put(b"4", key=b"k", priority="high"),
        lambda: queue.put(b"4", delay=5),
        lambda: queue.put_many([quivermq.Message(b"4")]),
    ):
        assert isinstance(refused(store, put), quivermq.Overloaded)
    assert drain(queue) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("settle", ["ack", "reject", "pop", "seek", "expire"])
def test_what_is_finished_makes_room(store: Store, settle: str) -> None:
    queue = store.queue(backlog_messages_max=1)
    queue.put(b"1", ttl=5)
    if settle == "pop":
        queue.pop()
    elif settle == "seek":
        queue.seek("latest")
    elif settle == "expire":
        store.pass_time(5)
        queue.get()
    else:
        message = queue.get()
        assert message is not None
        with pytest.raises(quivermq.Overloaded):
            queue.put(b"2")
        getattr(message, settle)()
    queue.put(b"2")
    assert drain(queue) == [b"2"]


def test_what_is_in_flight_or_waits_for_its_retry_counts(store: Store) -> None:
    queue = store.queue(backlog_messages_max=2)
    queue.put_many([b"1", b"2"])
    queue.get_many(1)[0].nack(delay=100)
    queue.get()
    with pytest.raises(quivermq.Overloaded):
        queue.put(b"3")


def test_delayed_messages_count(store: Store) -> None:
    queue = store.queue(backlog_messages_max=2)
    queue.put(b"1", delay=5)
    put = queue.put(b"2", delay=5)
    with pytest.raises(quivermq.Overloaded):
        queue.put(b"3")
    assert put.scheduled_id
    queue.cancel(put.scheduled_id)
    queue.put(b"3")
    store.pass_time(5)
    assert sorted(drain(queue)) == [b"1", b"3"]


def test_the_slowest_group_counts(store: Store) -> None:
    queue = store.queue(backlog_messages_max=2)
    store.queue(group="slow").get()
    queue.put_many([b"1", b"2"])
    drain(queue)
    with pytest.raises(quivermq.Overloaded):
        queue.put(b"3")
    store.queue(group="slow").seek("latest")
    queue.put(b"3")


def test_a_deleted_group_does_not_count(store: Store) -> None:
    queue = store.queue(backlog_messages_max=2)
    store.queue(group="slow").get()
    queue.put_many([b"1", b"2"])
    drain(queue)
    store.engine.delete_group("orders", "slow")
    queue.put(b"3")


def test_bytes_count(store: Store) -> None:
    queue = store.queue(backlog_bytes_max=10_000)
    for _ in range(7):
        queue.put(bytes(1000))
    with pytest.raises(quivermq.Overloaded) as caught:
        queue.put(bytes(3000))
    assert caught.value.setting == "backlog_bytes_max"
    drain(queue)
    queue.put(bytes(1000))


def test_the_bytes_of_delayed_messages_count(store: Store) -> None:
    queue = store.queue(backlog_bytes_max=10_000)
    queue.put_many([quivermq.Message(bytes(1000), delay=100)] * 8)
    with pytest.raises(quivermq.Overloaded):
        queue.put(bytes(3000), delay=100)


def test_keys_and_headers_count_as_bytes(store: Store) -> None:
    queue = store.queue(backlog_bytes_max=10_000)
    with pytest.raises(quivermq.Overloaded):
        queue.put(b"", headers={"h": bytes(20_000)})


def test_what_is_in_flight_counts_as_bytes(store: Store) -> None:
    queue = store.queue(backlog_bytes_max=10_000)
    queue.put_many([bytes(1000)] * 8)
    messages = queue.get_many(8)
    with pytest.raises(quivermq.Overloaded):
        queue.put(bytes(3000))
    queue.ack(messages)
    queue.put(bytes(3000))


@pytest.mark.parametrize("has_group", [True, False])
def test_the_oldest_go_for_newer_ones(store: Store, has_group: bool) -> None:
    queue = store.queue(backlog_messages_max=3, backlog_policy="drop_oldest")
    if has_group:
        assert queue.get() is None
    for n in range(10):
        queue.put(b"%d" % n)
    assert queue.stats().pending == 3
    assert drain(queue) == [b"7", b"8", b"9"]


def test_what_was_dropped_stays_dropped(store: Store) -> None:
    queue = store.queue(backlog_messages_max=2, backlog_policy="drop_oldest")
    for n in range(5):
        queue.put(b"%d" % n)
    store.kill()
    assert store.queue().stats().pending == 2
    assert drain(store.queue()) == [b"3", b"4"]


@pytest.mark.parametrize("there", [0, 2, 3])
def test_a_batch_over_the_limit_is_refused_whatever_the_policy(store: Store, there: int) -> None:
    queue = store.queue(backlog_messages_max=3, backlog_policy="drop_oldest")
    queue.put_many([b"%d" % n for n in range(there)])
    with pytest.raises(quivermq.Overloaded):
        queue.put_many([b"x"] * 4)
    assert queue.stats().backlog == there
    assert len(drain(queue)) == there


def test_a_message_over_the_limit_of_bytes_drops_nothing(store: Store) -> None:
    queue = store.queue(backlog_bytes_max=5000, backlog_policy="drop_oldest")
    queue.put(b"there")
    with pytest.raises(quivermq.Overloaded):
        queue.put(bytes(6000))
    assert drain(queue) == [b"there"]


def test_dropping_by_bytes(store: Store) -> None:
    queue = store.queue(backlog_bytes_max=5000, backlog_policy="drop_oldest", durability="os")
    for n in range(50):
        queue.put(b"%d" % n + bytes(500))
    left = [int(value.rstrip(b"\0")) for value in drain(queue)]
    assert left == list(range(50 - len(left), 50))
    assert 4 <= len(left) <= 10


def test_what_is_in_flight_is_not_dropped(store: Store) -> None:
    queue = store.queue(backlog_messages_max=2, backlog_policy="drop_oldest")
    queue.put_many([b"1", b"2"])
    message = queue.get()
    assert message is not None
    queue.put(b"3")
    assert drain(queue) == [b"3"]
    message.ack()
    queue.put_many([b"4", b"5"])
    taken = queue.get_many(2)
    with pytest.raises(quivermq.Overloaded):
        queue.put(b"6")
    queue.ack(taken)


def test_the_oldest_of_all_lanes_goes_first(store: Store) -> None:
    queue = store.queue(backlog_messages_max=3, backlog_policy="drop_oldest")
    for n, priority in enumerate(["low", "high", "normal"]):
        store.clock.advance(1)
        queue.put(b"%d" % n, priority=priority_of(priority))
    store.clock.advance(1)
    queue.put(b"3", priority="high")
    assert sorted(drain(queue)) == [b"1", b"2", b"3"]


def test_interleaved_lanes_lose_their_oldest(store: Store) -> None:
    queue = store.queue(backlog_messages_max=6, backlog_policy="drop_oldest")
    for n in range(6):
        store.clock.advance(1)
        queue.put(b"%d" % n, priority=("low", "high")[n % 2])
    store.clock.advance(1)
    queue.put_many([b"6", b"7", b"8", b"9"])
    assert sorted(drain(queue)) == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_limits_change_while_running(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"x"] * 5)
    store.engine.alter_topic("orders", backlog_messages_max=3)
    with pytest.raises(quivermq.Overloaded):
        queue.put(b"y")
    store.engine.alter_topic("orders", backlog_policy="drop_oldest")
    queue.put(b"y")
    assert queue.stats().backlog == 3
    store.engine.alter_topic("orders", backlog_messages_max=None)
    queue.put_many([b"z"] * 10)
    assert values(queue.peek(100)) == [b"x", b"x", b"y"] + [b"z"] * 10


def test_many_producers_do_not_go_over_the_limit_together(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", backlog_messages_max=20, durability="os")
    queue = mq.queue("orders")

    def produce() -> int:
        done = 0
        for _ in range(10):
            try:
                queue.put(b"x")
                done += 1
            except quivermq.Overloaded:
                pass
        return done

    futures: list[Any] = [start(produce) for _ in range(8)]
    assert sum(future.result(60) for future in futures) == 20
    assert len(drain(queue)) == 20


@pytest.mark.parametrize("way", ["retention", "force"])
def test_what_retention_took_is_no_backlog(store: Store, way: str) -> None:
    queue = store.queue(
        segment_messages=1,
        retention_messages=2,
        retention_force=way == "force",
        backlog_messages_max=20,
    )
    if way == "force":
        queue.get()
    for n in range(20):
        queue.put(b"%d" % n)
    store.engine.compact()
    queue.get()
    assert queue.stats().backlog <= 3
    queue.put(b"fits")


def test_an_expired_backlog_makes_room(store: Store) -> None:
    queue = store.queue(backlog_messages_max=2)
    drain(queue)
    queue.put_many([quivermq.Message(b"x", ttl=1)] * 2)
    store.pass_time(1)
    assert drain(queue) == []
    queue.put(b"y")
