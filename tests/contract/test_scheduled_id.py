"""The id under which a delayed message waited: it stays with the message wherever that goes."""

from pathlib import Path
from typing import Any

import pytest
from contract.conftest import Ways
from contract.test_replace_segment import segment, stamp, without
from support.archives import archive_queue

import quivermq

HOUR = 3600


def late(orders: Any, *values: bytes, **more: Any) -> list[str]:
    """Delay messages and have them at once; returns their ids."""
    ids = [orders.put(value, delay=HOUR, **more).scheduled_id for value in values]
    assert all(map(orders.deliver_now, ids))
    return ids


def test_one_that_was_due_keeps_its_id(mq: Any) -> None:
    orders = mq.queue("orders", "billing")
    put = orders.put(b"late", delay=0.001)
    [plain] = orders.put_many([b"plain"])
    found = {
        message.value: message.scheduled_id for _ in range(2) for message in orders.get_many(1, timeout=60)
    }
    assert put.scheduled_id
    assert found == {b"late": put.scheduled_id, b"plain": None}
    assert plain.scheduled_id is None


def test_it_is_told_wherever_the_message_is_looked_at(mq: Any) -> None:
    orders = mq.queue("orders", "billing")
    orders.put(b"plain")
    [put] = late(orders, b"late")
    assert [message.scheduled_id for message in orders.read()] == [None, put]
    assert [message.scheduled_id for message in orders.peek(2)] == [None, put]
    assert [message.scheduled_id for message in orders.read(text=b"late")] == [put]
    assert orders.to_arrow().column("scheduled_id").to_pylist() == [None, put]
    assert [message.scheduled_id for message in orders.get_many(2)] == [None, put]


def test_it_survives_failing_and_a_restart(ways: Ways) -> None:
    mq = ways.open()
    orders = mq.queue("orders", "billing")
    [put] = late(orders, b"late")
    message = orders.get()
    assert message.scheduled_id == put
    message.release()
    mq = ways.restarted(mq)
    message = mq.queue("orders", "billing").get()
    assert (message.value, message.scheduled_id) == (b"late", put)


def test_it_goes_to_the_dead_letters_and_back(ways: Ways) -> None:
    mq = ways.open()
    orders = mq.queue("orders", "billing")
    [put] = late(orders, b"late", headers={"a": b"1"})
    orders.put(b"plain")
    for message in orders.get_many(2):
        message.reject("bad")
    assert [letter.scheduled_id for letter in orders.dead_letters()] == [put, None]
    mq = ways.restarted(mq)
    orders, graves = mq.queue("orders", "billing"), mq.queue("orders.dlq", "looking")
    assert [message.scheduled_id for message in graves.read()] == [put, None]
    assert [message.scheduled_id for message in graves.get_many(2)] == [put, None]
    assert orders.redrive() == 2
    back = orders.get_many(2)
    assert [(message.value, message.scheduled_id) for message in back] == [(b"late", put), (b"plain", None)]
    # Whoever mends it does not make another message of it.
    back[0].reject("still bad")
    [letter] = orders.dead_letters()
    assert orders.redrive(edits={letter.id: quivermq.Message(b"mended")}) == 1
    mended = orders.get()
    assert (mended.value, mended.scheduled_id) == (b"mended", put)


def test_it_is_archived(mq: Any, ways: Ways) -> None:
    data: Path = ways.directory("orders")
    mq.create_topic("orders", segment_messages=2)
    orders = mq.queue("orders", "billing")
    [put] = late(orders, b"late")
    orders.put_many([b"1", b"2", b"3"])
    before = orders.read()
    assert before[0].scheduled_id == put
    archive = data.with_name("archive")
    archive_queue(data, archive, "orders", end=4)
    mq.use_archive(archive)
    for _ in before:
        orders.pop()
    assert mq.compact(archived=True).messages >= 2
    assert orders.read(start=0) == before


def test_compaction_leaves_it(mq: Any, ways: Ways) -> None:
    mq.create_topic("state", segment_messages=10, cleanup="compact")
    state = mq.queue("state")
    kept, gone = late(state, b"kept", b"gone", key=b"k")
    state.put_many([b"%d" % number for number in range(9)])
    state.put(b"in the next segment")
    old = segment(ways.directory("state"), 0)
    mq.replace_segment("state", 0, 0, without(old, 0), expected=stamp(old))
    left = [message.scheduled_id for message in state.read()]
    assert left[0] == kept
    assert gone not in left


@pytest.mark.parametrize("ways", ["connect"], indirect=True)
def test_a_consumer_of_a_stream_is_told(mq: Any) -> None:
    [put] = late(mq.queue("orders"), b"late")
    with mq.consumer("orders", "stream") as consumer:
        assert [message.scheduled_id for message in consumer.poll(60)] == [put]
