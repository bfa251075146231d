"""What an operator does: purging, pausing, and letting things come before their time."""

from typing import Any

import pytest
from contract.conftest import Ways

import quivermq


def values(messages: list[Any]) -> list[bytes]:
    return [message.value for message in messages]


def test_a_purged_topic_has_nothing_for_anybody(mq: Any) -> None:
    mq.create_topic("orders", partitions=2, backoff_ms=60_000)
    orders, other = mq.queue("orders", "billing"), mq.queue("orders", "shipping")
    orders.put_many([b"%d" % number for number in range(20)])
    orders.put(b"urgent", priority="high")
    put = orders.put(b"later", delay=3600, dedup_id="later")
    held, failed = orders.get_many(2)
    failed.nack()
    assert orders.purge() == 22
    assert orders.get() is other.get() is None
    assert orders.scheduled() == []
    stats = orders.stats()
    assert (stats.pending, stats.retrying, stats.delayed) == (0, 0, 0)
    assert mq.stats().topics["orders"].messages == 0
    # Who has a message in hand may still settle it, and what comes afterwards is like any other.
    held.ack()
    again = orders.put(b"later", dedup_id="later")
    assert not again.duplicate
    assert again.scheduled_id is None
    assert put.scheduled_id is not None
    assert values(other.get_many(10)) == [b"later"]
    assert orders.purge() == 1
    with pytest.raises(quivermq.TopicNotFound):
        mq.queue("nowhere").purge()


def test_a_purge_leaves_the_dead_letters(orders: Any) -> None:
    orders.put_many([b"1", b"2"])
    orders.get().reject("bad")
    orders.purge()
    assert values(orders.dead_letters()) == [b"1"]
    assert orders.redrive() == 1
    assert orders.get().value == b"1"


def test_a_paused_group_gets_nothing_until_it_is_resumed(ways: Ways) -> None:
    mq = ways.open()
    mq.create_topic("orders", partitions=1)
    orders, other = mq.queue("orders", "billing"), mq.queue("orders", "shipping")
    orders.put_many([b"1", b"2"])
    held = orders.get()
    orders.pause()
    assert orders.get() is None
    assert orders.get_many(5, timeout=0.01) == []
    assert orders.stats().state == "paused"
    assert other.get().value == b"1"
    held.nack(delay=0)
    assert orders.get() is None
    # Also in a partition that comes later, and when it is opened again.
    mq.alter_topic("orders", partitions=2)
    orders.put(b"3", partition=1)
    assert orders.get() is None
    mq.close()
    mq = ways.open()
    orders = mq.queue("orders", "billing")
    assert orders.get() is None
    orders.resume()
    assert sorted(values(orders.get_many(10))) == [b"1", b"2", b"3"]
    with pytest.raises(quivermq.GroupNotFound):
        mq.queue("orders", "nobody").pause()


def test_what_failed_can_be_tried_again_at_once(mq: Any) -> None:
    mq.create_topic("orders", backoff_ms=600_000, backoff_ms_max=600_000)
    orders = mq.queue("orders")
    orders.put_many([b"1", b"2", b"3"])
    for message in orders.get_many(2):
        message.nack()
    assert values(orders.get_many(5)) == [b"3"]
    assert orders.retry_now() == 2
    again = orders.get_many(5)
    assert sorted((message.value, message.attempt) for message in again) == [(b"1", 2), (b"2", 2)]
    assert orders.retry_now() == 0


def test_a_delayed_message_can_come_now(mq: Any) -> None:
    orders = mq.queue("orders")
    ids = [orders.put(b"%d" % number, delay=3600 + number).scheduled_id for number in range(4)]
    assert orders.deliver_now(ids[2])
    assert not orders.deliver_now(ids[2])
    assert not orders.cancel(ids[2])
    assert not orders.deliver_now("made up")
    # No text that anybody could have been told, and so no id.
    assert not orders.deliver_now("\ud800")
    assert values(orders.get_many(5)) == [b"2"]
    assert [waiting.id for waiting in orders.scheduled()] == [ids[0], ids[1], ids[3]]
    assert orders.stats().delayed == 3


def test_many_delayed_messages_are_cancelled_at_once(mq: Any) -> None:
    orders = mq.queue("orders")
    ids = [orders.put(b"%d" % number, delay=3600).scheduled_id for number in range(5)]
    assert orders.cancel_many([*ids[:3], ids[0], "made up"]) == 3
    assert [waiting.id for waiting in orders.scheduled()] == ids[3:]
    assert mq.queue("nowhere").cancel_many(ids) == 0
    for wrong in (ids[3], None):
        with pytest.raises(quivermq.InvalidRequest):
            orders.cancel_many(wrong)
