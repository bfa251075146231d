"""Streams that take messages ahead: nothing is lost, and nothing is held for longer than needed."""

from typing import Any

import pytest
from support.threads import wait_until

import quivermq

pytestmark = pytest.mark.parametrize("ways", ["connect", "aio.open", "aio.connect"], indirect=True)


@pytest.mark.parametrize("prefetch", [2, 3, 10, 1000])
def test_everything_comes_in_order_and_is_acked(orders: Any, prefetch: int) -> None:
    values = [b"%d" % number for number in range(60)]
    orders.put_many(values)
    assert [message.value for message in orders.stream(timeout=0, prefetch=prefetch)] == values
    assert orders.stats() == quivermq.QueueStats("orders", "billing")


def test_no_more_are_held_than_prefetch_says(orders: Any) -> None:
    orders.put_many([b"%d" % number for number in range(20)])
    stream = orders.stream(timeout=0, prefetch=4)
    for _ in range(20):
        next(stream)
        assert orders.stats().in_flight <= 4 + 2  # Those whose ack is on its way.
    stream.close()


def test_the_next_ones_are_fetched_while_the_loop_is_at_work(orders: Any) -> None:
    orders.put_many([b"%d" % number for number in range(20)])
    stream = orders.stream(timeout=0, prefetch=4)
    next(stream)
    wait_until(lambda: orders.stats().in_flight == 4)
    stream.close()


def test_what_the_loop_got_past_is_acked_while_it_is_at_work(orders: Any) -> None:
    orders.put_many([b"a", b"b", b"c"])
    stream = orders.stream(timeout=0, prefetch=100)
    taken = [next(stream) for _ in range(3)]
    wait_until(lambda: orders.stats().in_flight == 1)
    assert [message.is_settled for message in taken] == [True, True, False]
    stream.close()


def test_what_the_loop_got_past_is_acked_while_it_waits(mq: Any, orders: Any) -> None:
    orders.put(b"a")
    stream = orders.stream(prefetch=100)
    assert next(stream).value == b"a"
    mq.queue("orders").put(b"b")
    assert next(stream).value == b"b"
    # It had to ask for this one.
    assert orders.stats().in_flight == 1
    stream.close()


def test_a_stream_that_is_left_gives_back_all_but_what_it_passed(orders: Any) -> None:
    orders.put_many([b"%d" % number for number in range(10)])
    stream = orders.stream(prefetch=6)
    assert [next(stream).value for _ in range(2)] == [b"0", b"1"]
    stream.close()
    stats = orders.stats()
    assert (stats.in_flight, stats.backlog) == (0, 9)
    again = orders.get_many(10, timeout=5)
    while len(again) < 9:
        again += orders.get_many(10, timeout=5)
    assert sorted(message.value for message in again) == [b"%d" % number for number in range(1, 10)]


def test_what_the_loop_settled_itself_stays_so(orders: Any) -> None:
    orders.put_many([b"ack", b"reject", b"nack", b"nothing"])
    for message in orders.stream(timeout=0, prefetch=10):
        if message.value == b"nack":
            message.nack(delay=600)
        elif message.value != b"nothing":
            getattr(message, message.value.decode())()
    stats = orders.stats()
    assert (stats.in_flight, stats.pending, stats.retrying, stats.dead_letters) == (0, 0, 1, 1)


def test_the_leases_of_what_was_taken_ahead_are_renewed(orders: Any) -> None:
    orders.put_many([b"a", b"b", b"c", b"other"])
    stream = orders.stream(prefetch=3, lease=1)
    first = next(stream)
    wait_until(lambda: orders.stats().in_flight == 3)
    # A lease that nobody renews and that began later is over first: two of them take longer than one.
    other = orders.get(lease=1.6)
    assert orders.get(timeout=30).offset == other.offset
    assert [first.attempt, next(stream).attempt, next(stream).attempt] == [1, 1, 1]
    stream.close()


def test_the_loop_hears_of_a_lease_that_was_lost(orders: Any) -> None:
    orders.put_many([b"a", b"b"])
    stream = orders.stream(timeout=0, prefetch=10)
    receipt = next(stream).receipt
    orders.ack(receipt)
    with pytest.raises(quivermq.LeaseExpired) as caught:
        list(stream)
    assert caught.value.receipts == (receipt,)
    assert orders.stats().in_flight == 0


def test_closing_the_connection_acks_what_the_loop_got_past(ways: Any, mq: Any) -> None:
    orders = mq.queue("orders")
    orders.put_many([b"a", b"b", b"c"])
    stream = orders.stream(prefetch=10)
    taken = [next(stream) for _ in range(3)]
    mq.close()
    assert [message.is_settled for message in taken] == [True, True, False]
    stream.close()


def test_a_stream_of_many_topics_acks_each(mq: Any) -> None:
    for topic in ("events.a", "events.b"):
        mq.create_topic(topic, partitions=2)
        mq.queue(topic).put_many([quivermq.Message(b"%d" % i, partition=i % 2) for i in range(10)])
    events = mq.queue("events.*", "g")
    assert len(list(events.stream(timeout=0, prefetch=7))) == 20
    assert events.stats() == quivermq.QueueStats("events.*", "g")


def test_a_prefetch_that_is_no_number_is_refused(orders: Any) -> None:
    for prefetch in (0, 10_001, "5"):
        with pytest.raises(quivermq.InvalidRequest):
            next(orders.stream(prefetch=prefetch))
