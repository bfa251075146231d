"""What is as it was after closing, after kill -9, and after power loss."""

from typing import Any

import pytest
from unit.engine.store import Store, drain, values

import quivermq


@pytest.fixture(params=["reopen", "kill", "power"])
def again(request: pytest.FixtureRequest, store: Store) -> Any:
    def reopen() -> quivermq.Queue:
        if request.param == "power":
            store.disk.stop()
            store.open_again(store.disk.after_power_loss(keep="nothing"))
        else:
            getattr(store, request.param)()
        return store.queue()

    return reopen


def test_messages_in_flight_stay_with_their_holder(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2", b"3"])
    one, two, three = queue.get_many(3)
    one.ack()
    queue = again()
    assert queue.get() is None
    assert queue.stats().in_flight == 2
    queue.ack(two.receipt)
    with pytest.raises(quivermq.LeaseExpired):
        queue.ack(one.receipt)
    store.clock.advance(30)
    message = queue.get()
    assert message is not None
    assert (message.value, message.attempt) == (b"3", 2)
    with pytest.raises(quivermq.LeaseExpired):
        queue.ack(three.receipt)


def test_attempts_are_kept(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put(b"x")
    for attempt in (1, 2, 3):
        message = queue.get()
        assert message is not None
        assert message.attempt == attempt
        queue = again()
        queue.nack(message.receipt, delay=0)
    assert queue.get() is None
    [letter] = queue.dead_letters()
    assert letter.attempts == 3


def test_leases_that_end_while_closed_count(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put(b"x")
    for attempt in (1, 2, 3):
        message = queue.get()
        assert message is not None
        assert message.attempt == attempt
        store.clock.advance(31)
        queue = again()
    assert queue.get() is None
    assert [letter.reason for letter in queue.dead_letters()] == ["lease_expired"]


def test_retries_wait_for_their_time(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2"])
    queue.get_many(1)[0].nack(delay=100)
    queue = again()
    assert drain(queue) == [b"2"]
    store.clock.advance(99)
    assert queue.get() is None
    store.clock.advance(1)
    assert drain(queue) == [b"1"]


def test_extended_leases_last(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    message.extend(1000)
    queue = again()
    store.clock.advance(900)
    assert queue.get() is None
    queue.ack(message.receipt)


def test_everything_is_where_it_was(store: Store, again: Any) -> None:
    queue = store.queue(partitions=3)
    for n in range(30):
        queue.put(
            b"%d" % n, priority=("high", "normal", "low")[n % 3], headers={"n": b"%d" % n}, key=b"%d" % n
        )
    before = [queue.read(partition=p, priority=x) for p in range(3) for x in ("high", "normal", "low")]
    queue = again()
    after = [queue.read(partition=p, priority=x) for p in range(3) for x in ("high", "normal", "low")]
    assert after == before
    assert len(drain(queue)) == 30


def test_acks_out_of_order_stay_acked(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put_many([b"%d" % n for n in range(100)])
    messages = queue.get_many(100)
    queue.ack(messages[::-2])
    queue = again()
    queue.ack([message.receipt for message in messages[:50:2]])
    queue = again()
    store.clock.advance(31)
    assert drain(queue) == [b"%d" % n for n in range(50, 100, 2)]


def test_pops_stay_popped(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2"])
    assert queue.pop() is not None
    assert drain(again()) == [b"2"]


def test_dead_letters_and_redrives_stay(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2", b"3"])
    queue.reject(queue.get_many(3), "why")
    queue = again()
    assert queue.stats().dead_letters == 3
    assert queue.redrive(lambda letter: letter.value == b"2") == 1
    queue = again()
    assert values(queue.dead_letters()) == [b"1", b"3"]
    assert drain(queue) == [b"2"]


def test_offsets_go_on(store: Store, again: Any) -> None:
    queue = store.queue(segment_messages=2, delete_finished=True)
    for _ in range(5):
        queue.put(b"x")
    drain(queue)
    store.engine.compact()
    queue = again()
    assert queue.put(b"y").offset == 5
    assert drain(queue) == [b"y"]


def test_reopening_often(store: Store) -> None:
    for n in range(10):
        store.queue().put(b"%d" % n)
        message = store.queue().get()
        assert message is not None
        assert message.value == b"%d" % n
        message.ack()
        store.queue().put(b"later", delay=10_000)
        (store.reopen if n % 2 else store.kill)()
    assert store.queue().stats().delayed == 10
    assert store.queue().stats().pending == 0


def test_many_in_flight_come_back_with_their_leases(store: Store) -> None:
    queue = store.queue(durability="os")
    queue.put_many([b"x"] * 10_000)
    receipts = [message.receipt for message in queue.get_many(10_000)]
    store.kill()
    queue = store.queue()
    assert queue.stats().in_flight == 10_000
    queue.ack(receipts)
    assert queue.stats().backlog == 0


def test_buffered_messages_survive_a_close(store: Store) -> None:
    queue = store.queue(durability="buffered")
    for n in range(10):
        queue.put(b"%d" % n)
    store.reopen()
    assert drain(store.queue()) == [b"%d" % n for n in range(10)]


def test_buffered_acks_survive_a_close(store: Store) -> None:
    queue = store.queue(durability="buffered")
    queue.put_many([b"1", b"2"])
    queue.ack(queue.get_many(1))
    store.reopen()
    assert drain(store.queue()) == [b"2"]


def test_a_close_on_a_full_disk_can_be_repeated(store: Store) -> None:
    queue = store.queue(durability="buffered")
    queue.put(bytes(1000))
    store.disk.fill_after(10)
    with pytest.raises(quivermq.DiskFull):
        store.engine.close()
    store.disk.fill_after(None)
    store.reopen()
    assert drain(store.queue()) == [bytes(1000)]


def test_the_longest_names_together(store: Store, again: Any) -> None:
    queue = store.engine.queue("t" * 249, "g" * 249)
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    again()
    store.engine.queue("t" * 249, "g" * 249).ack(message.receipt)


def test_figures_after_reopening(store: Store, again: Any) -> None:
    queue = store.queue()
    queue.put_many([b"x"] * 6)
    queue.put(b"later", delay=50)
    messages = queue.get_many(4)
    messages[0].ack()
    messages[1].nack(delay=50)
    messages[2].reject()
    before = queue.stats()
    assert again().stats() == before
