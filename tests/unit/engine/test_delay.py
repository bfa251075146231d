"""Delayed messages: when they come, in which order, listed, cancelled, and after a restart."""

from datetime import UTC, datetime
from typing import Any

import pytest
from unit.engine.store import DATA, Store, drain, values

import quivermq
from quivermq.engine import engine_of

START_US = 1_700_000_000_000_000


def test_a_delayed_message_comes_when_it_is_due(store: Store) -> None:
    queue = store.queue()
    put = queue.put(b"later", delay=5, key=b"k", headers={"h": b"1"}, priority="high")
    assert (put.offset, put.duplicate, put.priority) == (None, False, "high")
    assert put.scheduled_id is not None
    assert queue.stats().delayed == 1
    store.clock.advance(4.999_999)
    assert queue.get() is None
    store.clock.advance(0.000_001)
    message = queue.get()
    assert message is not None
    assert (message.value, message.key, message.headers) == (b"later", b"k", {"h": b"1"})
    assert (message.priority, message.attempt, message.offset) == ("high", 1, 0)
    assert queue.stats().delayed == 0


@pytest.mark.parametrize(
    "moment",
    [START_US + 10_000_000, START_US / 1e6 + 10, datetime.fromtimestamp(START_US / 1e6 + 10, UTC)],
)
def test_a_moment_of_delivery_in_three_ways(store: Store, moment: Any) -> None:
    queue = store.queue()
    queue.put(b"x", deliver_at=moment)
    [waiting] = queue.scheduled()
    assert waiting.deliver_at == START_US + 10_000_000
    store.pass_time(9.99)
    assert queue.get() is None
    store.pass_time(0.01)
    assert drain(queue) == [b"x"]


@pytest.mark.parametrize("moment", [START_US - 1, START_US, 0.0, datetime(1980, 1, 1, tzinfo=UTC)])
def test_a_moment_that_is_over_means_now(store: Store, moment: Any) -> None:
    queue = store.queue()
    put = queue.put(b"x", deliver_at=moment)
    assert (put.offset, put.scheduled_id) == (0, None)
    assert drain(queue) == [b"x"]


def test_no_delay_means_now(store: Store) -> None:
    put = store.queue().put(b"x", delay=0)
    assert (put.offset, put.scheduled_id) == (0, None)


def test_delayed_messages_come_in_due_order(store: Store) -> None:
    queue = store.queue()
    for delay in (30, 10, 20, 10.5, 40):
        queue.put(b"%g" % delay, delay=delay)
    queue.put_many([quivermq.Message(b"15", delay=15), quivermq.Message(b"5", delay=5), b"now"])
    store.pass_time(100)
    assert drain(queue) == [b"now", b"5", b"10", b"10.5", b"15", b"20", b"30", b"40"]


def test_those_of_one_moment_come_in_the_order_they_were_put(store: Store) -> None:
    queue = store.queue()
    for n in range(10):
        queue.put(b"%d" % n, delay=5)
    store.pass_time(5)
    assert drain(queue) == [b"%d" % n for n in range(10)]


def test_the_waiting_are_listed_the_next_one_first(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put(b"b", delay=20, key=b"k", headers={"h": b"1"}, partition=1, priority="low")
    queue.put(b"a", delay=10)
    first, second = queue.scheduled()
    assert (first.value, second.value) == (b"a", b"b")
    assert second.deliver_at == START_US + 20_000_000
    assert (second.partition, second.priority, second.key, second.headers) == (1, "low", b"k", {"h": b"1"})
    assert values(queue.scheduled(limit=1)) == [b"a"]
    assert queue.scheduled(limit=0) == []
    store.clock.advance(10)
    assert values(queue.scheduled()) == [b"b"]


def test_a_cancelled_message_never_comes(store: Store) -> None:
    queue = store.queue()
    put = queue.put(b"x", delay=5)
    queue.put(b"y", delay=5)
    assert put.scheduled_id
    assert queue.cancel(put.scheduled_id) is True
    assert queue.cancel(put.scheduled_id) is False
    assert queue.stats().delayed == 1
    store.kill()
    queue = store.queue()
    assert queue.cancel(put.scheduled_id) is False
    store.pass_time(5)
    assert drain(queue) == [b"y"]


def test_what_is_due_can_no_longer_be_cancelled(store: Store) -> None:
    queue = store.queue()
    put = queue.put(b"x", delay=5)
    store.clock.advance(5)
    assert put.scheduled_id
    assert queue.cancel(put.scheduled_id) is False
    assert drain(queue) == [b"x"]


def test_an_id_of_one_topic_cancels_nothing_in_another(store: Store) -> None:
    put = store.queue("a").put(b"a", delay=5)
    assert put.scheduled_id
    store.queue("b").put(b"bbbb", delay=7)
    assert store.queue("b").cancel(put.scheduled_id) is False
    assert store.queue("a").cancel(put.scheduled_id) is True


@pytest.mark.parametrize("way", ["reopen", "kill"])
def test_what_fell_due_while_nobody_was_there_comes_in_due_order(store: Store, way: str) -> None:
    queue = store.queue()
    for delay in (30, 10, 20, 1000):
        queue.put(b"%d" % delay, delay=delay)
    if way == "reopen":
        store.engine.close()
        store.clock.advance(100)
        store.open_again(store.disk)
    else:
        store.clock.advance(100)
        store.kill()
    queue = store.queue()
    assert queue.stats().delayed == 1
    assert drain(queue) == [b"10", b"20", b"30"]
    store.pass_time(1000)
    assert drain(queue) == [b"1000"]


def test_every_group_gets_a_delayed_message(store: Store) -> None:
    store.queue().put(b"x", delay=5)
    store.queue(group="before").get()
    store.pass_time(5)
    for group in ("before", "after"):
        assert drain(store.queue(group=group)) == [b"x"]


def test_a_message_that_is_due_in_a_century_pins_nothing(store: Store) -> None:
    queue = store.queue(segment_messages=1, delete_finished=True)
    queue.put(b"later", delay=100 * 365 * 86_400)
    for n in range(5):
        queue.put(b"%d" % n)
    drain(queue)
    assert store.engine.compact().messages >= 4
    assert values(queue.scheduled()) == [b"later"]


def test_a_batch_of_delayed_messages_is_all_or_nothing_on_a_full_disk(store: Store) -> None:
    queue = store.queue()
    queue.put(b"first", delay=5)
    store.disk.fill_after(200)
    with pytest.raises(quivermq.DiskFull):
        queue.put_many([quivermq.Message(bytes(100), delay=n * 100_000) for n in range(1, 20)])
    store.disk.fill_after(None)
    assert values(queue.scheduled()) == [b"first"]


def test_the_background_releases_what_is_due(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x", delay=5)
    store.pass_time(5)
    assert values(queue.read()) == [b"x"]


def test_nothing_falls_due_in_a_topic_that_was_deleted(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"later", delay=5)
    hosted = engine_of(store.engine).catalog.get("orders")
    store.engine.delete_topic("orders")
    store.clock.advance(10)
    hosted.release(engine_of(store.engine).clock.now_us())
    assert not store.disk.is_directory(DATA / "topics" / "orders")
    assert queue.get() is None
