"""Getting: now or later, one or many, in a block, as a stream; and settling what one has."""

from typing import Any

import pytest
from contract.wrong import mistakes
from support.threads import start, wait_until

import quivermq


def values(messages: Any) -> list[bytes]:
    return [message.value for message in messages]


def test_a_topic_that_does_not_exist_has_no_messages(orders: Any) -> None:
    assert orders.get() is None
    assert orders.get_many(5) == []
    assert orders.pop() is None
    assert orders.stats() == quivermq.QueueStats("orders", "billing")
    with orders.process(timeout=0) as message:
        assert message is None
    assert list(orders.stream(timeout=0)) == []


def test_every_group_gets_every_message(mq: Any) -> None:
    mq.queue("orders").put(b"x")
    assert mq.queue("orders", "one").get().value == b"x"
    assert mq.queue("orders", "two").get().value == b"x"
    assert mq.queue("orders", "one").get() is None


def test_a_getter_waits_for_what_comes(mq: Any, orders: Any) -> None:
    waiting = start(lambda: orders.get(timeout=None))
    mq.queue("orders").put(b"late")
    assert waiting.result(60).value == b"late"


def test_a_getter_waits_no_longer_than_it_says(orders: Any) -> None:
    assert orders.get(timeout=0.05) is None
    assert orders.get_many(3, timeout=0.05) == []
    with orders.process(timeout=0.05) as message:
        assert message is None


def test_the_close_wakes_who_waits(mq: Any, orders: Any) -> None:
    orders.put(b"x")
    found: list[Any] = []

    def get_two() -> None:
        found.append(orders.get(timeout=None))
        orders.get(timeout=None)

    waiting = start(get_two)
    while not found:
        assert not waiting.done()
    mq.close()
    with pytest.raises(quivermq.Closing):
        waiting.result(60)


def test_many_are_taken_at_once_over_partitions_and_lanes(mq: Any) -> None:
    mq.create_topic("orders", partitions=3)
    orders = mq.queue("orders")
    puts = [orders.put(b"%d" % i, priority=("high", "normal", "low")[i % 3]) for i in range(30)]
    found = orders.get_many(100)
    assert {(m.partition, m.priority, m.offset) for m in found} == {(p[1], p[2], p[3]) for p in puts}
    orders.ack(found)
    assert all(message.is_settled for message in found)
    assert orders.stats() == quivermq.QueueStats("orders", "default")


def test_more_than_one_answer_holds_are_taken(orders: Any) -> None:
    orders.put_many([b"x"] * 6000)
    orders.put_many([b"y"] * 6000)
    found = orders.get_many(20_000)
    assert len(found) == 12_000
    orders.ack(found)
    assert orders.stats().backlog == 0


def test_a_message_is_settled_in_every_way(orders: Any) -> None:
    orders.put_many([b"ack", b"nack", b"reject", b"extend"])
    acked, nacked, rejected, extended = orders.get_many(4)
    acked.ack()
    nacked.nack(delay=600, reason="later")
    rejected.reject("never", error="a story")
    extended.extend(60)
    assert [m.is_settled for m in (acked, nacked, rejected, extended)] == [True, True, True, False]
    stats = orders.stats()
    assert (stats.pending, stats.retrying, stats.in_flight, stats.dead_letters) == (0, 1, 1, 1)
    (letter,) = orders.dead_letters()
    assert (letter.value, letter.reason, letter.error) == (b"reject", "never", "a story")


def test_a_nacked_message_comes_again(orders: Any) -> None:
    orders.put(b"x")
    first = orders.get()
    first.nack(delay=0)
    again = orders.get(timeout=5)
    assert (again.value, again.attempt, again.offset) == (b"x", 2, first.offset)
    assert again.receipt != first.receipt


def test_many_are_settled_at_once_by_receipt_or_delivery(orders: Any) -> None:
    orders.put_many([b"%d" % i for i in range(6)])
    found = orders.get_many(6)
    orders.ack(found[0])
    orders.ack(found[1].receipt)
    orders.ack([found[2], found[3].receipt])
    orders.nack((found[4],), delay=600)
    orders.reject({found[5].receipt})
    orders.ack([])
    stats = orders.stats()
    assert (stats.in_flight, stats.retrying, stats.dead_letters) == (0, 1, 1)


def test_a_lease_that_is_over_is_refused_and_the_others_settled(orders: Any) -> None:
    orders.put_many([b"a", b"b", b"c"])
    found = orders.get_many(3)
    found[1].ack()
    with pytest.raises(quivermq.LeaseExpired) as caught:
        orders.ack(found)
    assert caught.value.receipts == (found[1].receipt,)
    assert orders.stats().backlog == 0
    assert found[0].is_settled
    for settle in (found[0].ack, found[0].nack, found[0].reject, lambda: found[0].extend(5)):
        with pytest.raises(quivermq.LeaseExpired) as caught:
            settle()
        assert caught.value.receipts == (found[0].receipt,)


def test_a_lease_runs_out(orders: Any) -> None:
    orders.put(b"x")
    first = orders.get(lease=0.05)
    again = orders.get(timeout=30)
    assert (again.value, again.attempt) == (b"x", 2)
    with pytest.raises(quivermq.LeaseExpired):
        first.ack()
    again.ack()


def test_a_receipt_from_nowhere_is_over(orders: Any) -> None:
    orders.put(b"x")
    orders.get()
    for receipt in ("orders:0:1:0:1", "orders:9:1:0:1", "orders:0:1:77:1"):
        with pytest.raises(quivermq.LeaseExpired) as caught:
            orders.ack(receipt)
        assert caught.value.receipts == (receipt,)


def test_what_cannot_be_settled_is_refused(orders: Any) -> None:
    orders.put(b"x")
    for held in ("no receipt", 5, None, [5], "other:0:1:0:1", [None]):
        with pytest.raises(quivermq.InvalidRequest):
            orders.ack(held)


def test_a_delivery_belongs_to_its_group(mq: Any, orders: Any) -> None:
    orders.put(b"x")
    message = orders.get()
    with pytest.raises(quivermq.InvalidRequest):
        mq.queue("orders", "other").ack(message)
    message.ack()


WRONG_NUMBERS: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda q: q.get(timeout=-1), quivermq.InvalidRequest),
    (lambda q: q.get(timeout="5"), quivermq.InvalidRequest),
    (lambda q: q.get(timeout=float("nan")), quivermq.InvalidRequest),
    (lambda q: q.get(timeout=float("inf")), quivermq.InvalidRequest),
    (lambda q: q.get(timeout=True), quivermq.InvalidRequest),
    (lambda q: q.get(lease=0), quivermq.InvalidRequest),
    (lambda q: q.get_many(0), quivermq.InvalidRequest),
    (lambda q: q.get_many(100_001), quivermq.InvalidRequest),
    (lambda q: q.get_many("5"), quivermq.InvalidRequest),
    (lambda q: q.pop(timeout=-1), quivermq.InvalidRequest),
    (lambda q: q.get(lease=600).nack(delay=-1), quivermq.InvalidRequest),
    (lambda q: q.nack(q.get(lease=600), delay="soon"), quivermq.InvalidRequest),
    (lambda q: q.get(lease=600).extend(0), quivermq.InvalidRequest),
    (lambda q: q.extend(q.get(lease=600), "long"), quivermq.InvalidRequest),
]


def test_a_wrong_number_is_refused(orders: Any) -> None:
    orders.put_many([b"x"] * len(WRONG_NUMBERS))
    assert mistakes(WRONG_NUMBERS, orders) == []
    assert orders.stats().backlog == len(WRONG_NUMBERS)


def test_a_popped_message_is_done_with(orders: Any) -> None:
    orders.put(b"x")
    message = orders.pop(timeout=5)
    assert (message.value, message.is_settled) == (b"x", True)
    assert orders.stats().backlog == 0


def test_a_block_acks_at_its_end(orders: Any) -> None:
    orders.put(b"x")
    with orders.process() as message:
        assert orders.stats().in_flight == 1
    assert message.is_settled
    assert orders.stats().backlog == 0


def waiting_block(mq: Any, orders: Any) -> Any:
    """A block without a timeout, in a thread of its own, that has found nothing yet."""
    mq.create_topic("orders")

    def work() -> tuple[bytes, int]:
        with orders.process() as message:
            return message.value, message.attempt

    waiting = start(work)
    # Whoever looks for messages makes the group.
    wait_until(lambda: "billing" in mq.groups("orders"))
    assert not waiting.done()
    return waiting


def test_a_block_without_a_timeout_waits_for_what_comes(mq: Any, orders: Any) -> None:
    waiting = waiting_block(mq, orders)
    mq.queue("orders").put(b"late")
    assert waiting.result(60) == (b"late", 1)
    assert orders.stats().backlog == 0


def test_it_goes_on_waiting_where_that_is_done_in_slices(
    mq: Any, orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thread of an event loop, and a call of a broker, wait only for so long at a time.
    monkeypatch.setattr("quivermq.aio.threads._SLICE_S", 0.01)
    monkeypatch.setattr("quivermq.client.core.queue._WAIT_S_MAX", 0.01)
    waiting = waiting_block(mq, orders)
    assert mq.queue("orders", "other").get(timeout=0.2) is None
    assert not waiting.done()
    mq.queue("orders").put(b"late")
    assert waiting.result(60) == (b"late", 1)
    assert orders.stats().backlog == 0


def test_a_block_without_a_timeout_ends_with_the_queue(mq: Any, orders: Any) -> None:
    waiting = waiting_block(mq, orders)
    mq.close()
    with pytest.raises(quivermq.Closing):
        waiting.result(60)


def test_a_block_that_raises_gives_the_message_back(mq: Any) -> None:
    mq.create_topic("orders", attempts_max=1)
    orders = mq.queue("orders")
    orders.put(b"x")
    with pytest.raises(ZeroDivisionError), orders.process():
        raise ZeroDivisionError("by nought")
    (letter,) = orders.dead_letters()
    assert letter.error == "ZeroDivisionError: by nought"


def test_what_a_block_settled_itself_stays_so(orders: Any) -> None:
    orders.put(b"x")
    with orders.process() as message:
        message.reject("no")
    assert orders.stats().dead_letters == 1


def test_the_lease_of_a_block_is_renewed(mq: Any, orders: Any) -> None:
    orders.put(b"x")
    orders.put(b"y")
    with orders.process(lease=1) as message:
        # A lease that nobody renews and that began later is over first: two of them take longer than one.
        other = orders.get(lease=1.6)
        assert orders.get(timeout=30).offset == other.offset
        assert message.attempt == 1
    assert message.is_settled


def test_a_stream_acks_as_it_advances(orders: Any) -> None:
    orders.put_many([b"a", b"b", b"c"])
    seen = []
    for message in orders.stream(timeout=0):
        seen.append(message.value)
        assert orders.stats().in_flight == 1
    assert seen == [b"a", b"b", b"c"]
    assert orders.stats().backlog == 0


def test_a_stream_that_is_left_gives_its_message_back(orders: Any) -> None:
    orders.put_many([b"a", b"b"])
    stream = orders.stream()
    assert next(stream).value == b"a"
    stream.close()
    assert sorted(values(orders.get_many(5, timeout=5))) == [b"a", b"b"]


def test_a_pattern_takes_from_all_its_topics(mq: Any) -> None:
    for topic in ("events.a", "events.b", "events.b.c", "other"):
        mq.queue(topic).put(topic.encode())
    events = mq.queue("events.*", "g")
    found = events.get_many(10)
    assert sorted(values(found)) == [b"events.a", b"events.b"]
    assert events.stats() == quivermq.QueueStats("events.*", "g", in_flight=2)
    events.ack(found)
    assert events.stats() == quivermq.QueueStats("events.*", "g")
    assert sorted(values(mq.queue("events.>", "h").get_many(10))) == [
        b"events.a", b"events.b", b"events.b.c"
    ]  # fmt: skip


def test_order_by_key_holds_back_the_next_of_a_key(mq: Any) -> None:
    mq.create_topic("orders", ordering="key")
    orders = mq.queue("orders")
    orders.put_many([quivermq.Message(b"1", key=b"k"), quivermq.Message(b"2", key=b"k")])
    (first,) = orders.get_many(5)
    first.ack()
    assert orders.get().value == b"2"


@pytest.mark.parametrize("ways", ["connect", "aio.open", "aio.connect"], indirect=True)
def test_a_message_whose_lease_cannot_be_kept_goes_back(
    mq: Any, orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no more threads")

    monkeypatch.setattr(mq._renewer, "hold", fail)
    orders.put(b"x")
    with pytest.raises(RuntimeError, match="no more threads"):
        next(orders.stream())
    stats = orders.stats()
    assert (stats.in_flight, stats.pending + stats.retrying) == (0, 1)
    with pytest.raises(RuntimeError, match="no more threads"), orders.process(timeout=None):
        pytest.fail("nothing is to be processed")
    stats = orders.stats()
    assert (stats.in_flight, stats.pending + stats.retrying) == (0, 1)
