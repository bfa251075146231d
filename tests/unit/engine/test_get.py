"""Getting: what is handed out, in which order, and what looking does not change."""

import pytest
from unit.engine.store import Store, drain, values

import quivermq


def test_messages_come_in_order(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"%d" % n for n in range(10)])
    queue.put(b"10")
    assert drain(queue) == [b"%d" % n for n in range(11)]
    assert queue.get() is None


def test_getting_from_a_topic_that_is_not_there_makes_nothing(store: Store) -> None:
    before = store.files()
    queue = store.queue("nowhere")
    assert queue.get() is None
    assert queue.get_many(5) == []
    assert queue.pop() is None
    with queue.process(timeout=0) as message:
        assert message is None
    assert list(queue.stream(timeout=0)) == []
    assert queue.stats().pending == 0
    assert queue.scheduled() == []
    assert queue.dead_letters() == []
    assert queue.redrive() == 0
    assert store.engine.topics() == []
    assert store.files() == before


def test_a_message_in_flight_is_given_to_nobody_else(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    assert queue.get() is not None
    assert queue.get() is None
    assert store.queue().get_many(5) == []


def test_get_many_gives_what_there_is(store: Store) -> None:
    queue = store.queue(partitions=3)
    queue.put_many([b"%d" % n for n in range(7)])
    assert len(queue.get_many(3)) == 3
    assert len(queue.get_many(100)) == 4
    assert queue.get_many(1) == []


def test_every_partition_is_served(store: Store) -> None:
    queue = store.queue(partitions=4)
    for partition in range(4):
        queue.put_many([quivermq.Message(b"x", partition=partition)] * 10)
    first = [message.partition for _ in range(8) if (message := queue.get())]
    assert sorted(first) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_pop_is_done(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    message = queue.pop()
    assert message is not None
    assert queue.stats().in_flight == 0
    store.pass_time(100)
    assert queue.get() is None
    with pytest.raises(quivermq.LeaseExpired):
        message.ack()


def test_looking_takes_nothing(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"a", b"b", b"c"])
    assert values(queue.peek(2)) == [b"a", b"b"]
    assert values(queue.read(start=1)) == [b"b", b"c"]
    assert values(queue.read(limit=1)) == [b"a"]
    assert queue.read(limit=0) == []
    assert queue.read(start=3) == []
    assert store.engine.groups("orders") == []
    assert drain(queue) == [b"a", b"b", b"c"]
    assert values(queue.read()) == [b"a", b"b", b"c"]
    assert queue.peek(5) == []


def test_a_peek_tells_which_message_it_is(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put(b"x", partition=1, priority="low")
    [seen] = queue.peek()
    assert (seen.partition, seen.priority, seen.offset) == (1, "low", 0)


def test_a_peek_shows_what_comes_next(store: Store) -> None:
    queue = store.queue()
    queue.put_many([quivermq.Message(b"low", priority="low"), quivermq.Message(b"high", priority="high")])
    assert values(queue.peek(2)) == [b"high", b"low"]


def test_a_peek_passes_over_what_is_in_flight_and_expired(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"taken", quivermq.Message(b"mortal", ttl=5), b"next"])
    queue.get()
    store.pass_time(6)
    assert values(queue.peek(5)) == [b"next"]


def test_a_read_starts_where_the_log_does(store: Store) -> None:
    queue = store.queue(segment_messages=2, retention_messages=2)
    for n in range(6):
        queue.put(b"%d" % n)
    store.engine.compact()
    assert queue.read()[0].offset > 0
    with pytest.raises(quivermq.OffsetOutOfRange):
        queue.read(start=0)


def test_a_lease_may_be_given_with_the_call(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"short", b"usual"])
    queue.get(lease=2)
    queue.get()
    store.pass_time(2)
    again = queue.get()
    assert again is not None
    assert (again.value, again.attempt) == (b"short", 2)
    assert queue.get() is None


@pytest.mark.parametrize("timeout", [0, 0.0, 0.01])
def test_an_empty_queue_gives_nothing_in_time(mq: quivermq.Connection, timeout: float) -> None:
    queue = mq.queue("orders")
    assert queue.get(timeout) is None
    assert queue.get_many(5, timeout) == []
    assert queue.pop(timeout) is None
    mq.create_topic("orders")
    assert queue.get(timeout) is None
    assert queue.get_many(5, timeout) == []


def test_messages_that_expired_hide_no_other_lane(store: Store) -> None:
    queue = store.queue()
    queue.put_many([quivermq.Message(b"mortal", ttl=1, priority="high")] * 5)
    queue.put(b"there", priority="low")
    store.pass_time(2)
    message = queue.get()
    assert message is not None, "there is a message, but it was not found"
    assert message.value == b"there"


def test_messages_that_wait_for_their_key_hide_no_other_lane(store: Store) -> None:
    queue = store.queue(ordering="key")
    queue.put_many([quivermq.Message(b"k", key=b"k", priority="high")] * 5)
    queue.put(b"there", priority="low")
    assert queue.get() is not None
    message = queue.get()
    assert message is not None, "there is a message, but it was not found"
    assert message.value == b"there"


def test_a_delivery_can_be_shown(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x" * 1000)
    assert "orders/p0/normal offset 0, attempt 1" in repr(queue.get())
