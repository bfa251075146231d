"""Giving messages back: at once, and as if they had not been handed out."""

import os
import pickle
from typing import Any

import pytest
from contract.conftest import Ways

import quivermq


@pytest.fixture
def strict(mq: Any) -> Any:
    """A topic that gives a message up after three attempts."""
    mq.create_topic("orders", attempts_max=3, backoff_ms=1)
    return mq.queue("orders", "billing")


def test_a_released_message_comes_again_with_the_same_attempt(strict: Any) -> None:
    strict.put(b"x")
    for _ in range(5):
        message = strict.get()
        assert (message.value, message.attempt) == (b"x", 1)
        message.release()
        assert message.is_settled
    assert strict.dead_letters() == []


def test_a_retry_that_is_released_is_the_same_retry_again(strict: Any) -> None:
    strict.put(b"x")
    strict.get().nack(delay=0)
    for _ in range(3):
        message = strict.get()
        assert message.attempt == 2
        message.release()
    message = strict.get()
    message.nack(delay=0)
    assert strict.get().attempt == 3


def test_many_at_once_by_delivery_or_receipt_come_again_in_order(strict: Any) -> None:
    values = [b"%d" % number for number in range(6)]
    strict.put_many(values)
    taken = strict.get_many(6)
    strict.release(taken[4])
    strict.release([taken[3], taken[0].receipt])
    strict.release([taken[1].receipt, taken[2], taken[5].receipt])
    again = strict.get_many(10)
    assert [(message.value, message.attempt) for message in again] == [(value, 1) for value in values]


def test_a_released_message_comes_before_what_nobody_had(strict: Any) -> None:
    strict.put_many([b"1", b"2"])
    strict.get().release()
    assert [message.value for message in strict.get_many(2)] == [b"1", b"2"]


def test_a_receipt_that_was_released_settles_nothing(strict: Any) -> None:
    strict.put(b"x")
    message = strict.get()
    message.release()
    for settle in ("ack", "nack", "release", "reject"):
        with pytest.raises(quivermq.LeaseExpired):
            getattr(message, settle)()
    assert strict.get().attempt == 1


def test_what_is_late_keeps_nothing_else_from_being_released(strict: Any) -> None:
    strict.put_many([b"1", b"2"])
    first, second = strict.get_many(2)
    first.ack()
    with pytest.raises(quivermq.LeaseExpired) as caught:
        strict.release([first, second])
    assert caught.value.receipts == (first.receipt,)
    assert strict.get().value == b"2"


def test_a_released_message_is_pending_and_one_that_failed_before_is_not(strict: Any) -> None:
    strict.put(b"x")
    strict.get().release()
    stats = strict.stats()
    assert (stats.pending, stats.in_flight, stats.retrying) == (1, 0, 0)
    strict.get().nack(delay=0)
    strict.get().release()
    stats = strict.stats()
    assert (stats.pending, stats.in_flight, stats.retrying) == (0, 0, 1)


def test_the_order_inside_a_key_holds(mq: Any) -> None:
    mq.create_topic("orders", ordering="key")
    orders = mq.queue("orders")
    orders.put_many([quivermq.Message(b"%d" % number, key=b"k") for number in range(3)])
    first = orders.get()
    assert orders.get() is None
    first.release()
    for number in range(3):
        message = orders.get()
        assert message.value == b"%d" % number
        assert orders.get() is None
        message.ack()


@pytest.mark.parametrize("prefetch", [1, 100])
def test_a_stream_that_is_left_burns_no_attempt(strict: Any, prefetch: int) -> None:
    strict.put_many([b"%d" % number for number in range(100)])
    for _ in range(5):
        stream = strict.stream(prefetch=prefetch)
        for message in stream:
            message.ack()
            break
        stream.close()
    assert strict.dead_letters() == []
    left = strict.get_many(100)
    assert [(message.value, message.attempt) for message in left] == [
        (b"%d" % number, 1) for number in range(5, 100)
    ]


@pytest.mark.parametrize("ways", ["open", "connect"], indirect=True)
def test_a_loop_that_is_left_by_break_alone_burns_no_attempt(strict: Any) -> None:
    strict.put_many([b"%d" % number for number in range(100)])
    for _ in range(3):
        for message in strict.stream(prefetch=100):
            message.ack()
            break
    assert strict.dead_letters() == []
    assert {message.attempt for message in strict.get_many(100)} == {1}
    assert strict.stats().in_flight == 97


@pytest.mark.parametrize("prefetch", [1, 3])
def test_what_the_loop_was_at_is_released_too(strict: Any, prefetch: int) -> None:
    strict.put_many([b"1", b"2", b"3"])
    for _ in range(4):
        stream = strict.stream(prefetch=prefetch)
        for message in stream:
            assert (message.value, message.attempt) == (b"1", 1)
            break
        stream.close()
    assert strict.dead_letters() == []


def handle(queue: Any, error: BaseException, attempts: list[int]) -> None:
    """Take a message and raise."""
    with queue.process(timeout=5) as message:
        attempts.append(message.attempt)
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_a_block_that_is_interrupted_burns_no_attempt(strict: Any, error: BaseException) -> None:
    strict.put(b"x")
    attempts: list[int] = []
    for _ in range(4):
        with pytest.raises(type(error)):
            handle(strict, error, attempts)
    assert attempts == [1, 1, 1, 1]
    assert strict.dead_letters() == []
    assert strict.get().attempt == 1


def test_a_block_that_fails_burns_one(strict: Any) -> None:
    strict.put(b"x")
    attempts: list[int] = []
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            handle(strict, ValueError("no"), attempts)
    assert attempts == [1, 2, 3]
    [letter] = strict.dead_letters()
    assert (letter.reason, letter.attempts) == ("ValueError", 3)


def test_closing_releases_what_streams_and_blocks_are_at(ways: Any, mq: Any) -> None:
    orders = mq.queue("orders")
    orders.put_many([b"%d" % number for number in range(6)])
    stream = orders.stream(prefetch=4)
    taken = [next(stream)]

    def stop() -> None:
        with orders.process() as message:
            taken.append(message)
            mq.close()

    with pytest.raises(quivermq.Closing):
        stop()
    with pytest.raises(quivermq.Closing):
        next(stream)
    assert not any(message.is_settled for message in taken)
    left = ways.open().queue("orders").get_many(6)
    assert [(message.value, message.attempt) for message in left] == [(b"%d" % n, 1) for n in range(6)]


def test_the_last_attempt_is_known(strict: Any) -> None:
    strict.put(b"x")
    seen = []
    for _ in range(3):
        message = strict.get()
        seen.append(message.is_last_attempt)
        message.nack(delay=0)
    assert seen == [False, False, True]
    assert len(strict.dead_letters()) == 1


@pytest.mark.parametrize("ways", ["open", "connect"], indirect=True)
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("act", ["ack", "nack", "release", "reject"])
def test_a_pickled_delivery_is_settled_by_a_queue(strict: Any, act: str, many: bool) -> None:
    strict.put(b"x", key=b"k", headers={"a": b"1"})
    message = strict.get()
    copy = pickle.loads(pickle.dumps(message))
    for name in (
        "value",
        "key",
        "headers",
        "topic",
        "partition",
        "offset",
        "attempt",
        "receipt",
        "priority",
    ):
        assert getattr(copy, name) == getattr(message, name)
    assert (copy.is_last_attempt, copy.is_settled) == (False, False)
    with pytest.raises(quivermq.InvalidRequest, match=f"queue.{act}"):
        getattr(copy, act)()
    getattr(strict, act)([copy] if many else copy)
    assert strict.stats().in_flight == 0


def place(message: Any) -> tuple[str, int, int, int]:
    return message.topic, message.partition, ("high", "normal").index(message.priority), message.offset


def test_what_is_in_flight_is_listed_in_parts(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    orders = mq.queue("orders", "billing")
    lanes = [("high", 0), ("high", 1), ("normal", 0), ("normal", 1)]
    for priority, partition in lanes * 2:
        orders.put(b"x", partition=partition, priority=priority)
    assert orders.deliveries() == []
    taken = orders.get_many(8)
    taken[0].nack(delay=600)
    taken[1].ack()
    taken[2].release()
    found = orders.deliveries()
    assert list(map(place, found)) == sorted(map(place, taken[3:]))
    assert {each.attempt for each in found} == {1}
    assert all(each.deadline > 0 for each in found)
    parts = orders.deliveries(2)
    while part := orders.deliveries(2, after=parts[-1]):
        parts += part
    assert parts == found
    assert mq.queue("orders", "nobody").deliveries() == []
    assert mq.queue("nothing", "billing").deliveries() == []
    with pytest.raises(quivermq.InvalidRequest):
        orders.deliveries(after="5")


def test_who_has_a_message_and_since_when_outlives_a_restart(ways: Ways) -> None:
    mq = ways.open()
    orders = mq.queue("orders", "billing")
    orders.put_many([b"%d" % number for number in range(4)])
    orders.get().nack(delay=0)
    [failed, *others] = orders.get_many(3)
    assert (failed.value, failed.attempt) == (b"0", 2)
    others[0].extend(3600)
    before = orders.deliveries()
    assert [each.offset for each in before] == [0, 1, 2]
    # Embedded it is the process; of a client its program and its address.
    assert [str(os.getpid()) in each.holder for each in before] == [True, True, True]
    assert before[0].first_delivered_at < before[0].last_delivered_at < before[0].deadline
    assert before[1].first_delivered_at == before[1].last_delivered_at == before[0].last_delivered_at
    mq = ways.restarted(mq)
    assert mq.queue("orders", "billing").deliveries() == before
    mq.compact()
    mq = ways.restarted(mq)
    orders = mq.queue("orders", "billing")
    assert orders.deliveries() == before
    assert orders.get().value == b"3"
    assert {each.holder for each in orders.deliveries()} == {before[0].holder}


def test_what_is_in_flight_in_topics_of_a_pattern(mq: Any) -> None:
    for topic in ("events.b", "events.a"):
        mq.queue(topic).put_many([b"1", b"2"])
    events = mq.queue("events.*", "g")
    assert len(events.get_many(4)) == 4
    first = events.deliveries(3)
    assert [each.topic for each in first] == ["events.a", "events.a", "events.b"]
    [last] = events.deliveries(3, first[-1])
    assert (last.topic, last.offset) == ("events.b", 1)
