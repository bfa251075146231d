"""Seek: where a group goes on, and what it forgets."""

from datetime import UTC, datetime
from typing import Any

import pytest
from unit.engine.store import Store, drain, values

import quivermq


@pytest.fixture
def queue(store: Store) -> quivermq.Queue:
    """Ten messages, one a second."""
    queue = store.queue()
    for n in range(10):
        queue.put(b"%d" % n)
        store.clock.advance(1)
    return queue


def numbers(start: int, end: int = 10) -> list[bytes]:
    return [b"%d" % n for n in range(start, end)]


def test_earliest_and_latest(queue: quivermq.Queue) -> None:
    drain(queue)
    queue.seek("earliest")
    assert queue.stats().pending == 10
    assert drain(queue) == numbers(0)
    queue.seek("earliest")
    queue.seek("latest")
    assert queue.get() is None
    queue.put(b"new")
    assert drain(queue) == [b"new"]


@pytest.mark.parametrize("offset", [0, 4, 9, 10])
def test_an_offset(queue: quivermq.Queue, offset: int) -> None:
    queue.get_many(5)
    queue.seek(offset=offset)
    assert queue.stats().backlog == 10 - offset
    assert drain(queue) == numbers(offset)


@pytest.mark.parametrize("offset", [-1, 11, 10**18])
def test_an_offset_that_is_not_there(queue: quivermq.Queue, offset: int) -> None:
    with pytest.raises(quivermq.OffsetOutOfRange) as caught:
        queue.seek(offset=offset)
    assert (caught.value.start, caught.value.end) == (0, 10)
    assert drain(queue) == numbers(0)


START_S = 1_700_000_000


@pytest.mark.parametrize(
    "moment",
    [(START_S + 4) * 1_000_000, START_S + 4.0, START_S + 3.5, datetime.fromtimestamp(START_S + 4, UTC)],
)
def test_a_moment(queue: quivermq.Queue, moment: Any) -> None:
    drain(queue)
    queue.seek(timestamp=moment)
    assert drain(queue) == numbers(4)


@pytest.mark.parametrize(("seconds", "first"), [(-1000, 0), (0, 0), (9, 9), (9.5, 10), (10_000, 10)])
def test_moments_at_the_ends(queue: quivermq.Queue, seconds: float, first: int) -> None:
    drain(queue)
    queue.seek(timestamp=START_S + float(seconds))
    assert drain(queue) == numbers(first)


def test_the_time_that_producers_gave_counts(store: Store) -> None:
    queue = store.queue()
    for n in range(5):
        queue.put(b"%d" % n, timestamp=(1000 + n) * 1_000_000)
    queue.seek(timestamp=1002 * 1_000_000)
    assert drain(queue) == [b"2", b"3", b"4"]


def test_leases_and_retries_are_forgotten(store: Store, queue: quivermq.Queue) -> None:
    messages = queue.get_many(4)
    messages[0].nack(delay=5)
    messages[1].nack(delay=0)
    again = queue.get()
    assert again is not None
    assert again.attempt == 2
    queue.seek("earliest")
    with pytest.raises(quivermq.LeaseExpired):
        messages[2].ack()
    stats = queue.stats()
    assert (stats.pending, stats.in_flight, stats.retrying) == (10, 0, 0)
    fresh = queue.get_many(10)
    assert [m.attempt for m in fresh] == [1] * 10
    with pytest.raises(quivermq.LeaseExpired):
        again.ack()
    queue.ack(fresh)
    store.pass_time(100)
    assert queue.get() is None


def test_what_lies_before_is_done_also_in_flight(store: Store, queue: quivermq.Queue) -> None:
    messages = queue.get_many(3)
    queue.seek(offset=8)
    with pytest.raises(quivermq.LeaseExpired):
        messages[0].ack()
    store.pass_time(100)
    assert drain(queue) == [b"8", b"9"]


def test_one_partition_or_one_lane(store: Store) -> None:
    queue = store.queue(partitions=2)
    for partition in range(2):
        for priority in ("high", "normal", "low"):
            value = b"%d%s" % (partition, priority[:1].encode())
            queue.put_many([quivermq.Message(value, priority=priority, partition=partition)] * 2)
    drain(queue)
    queue.seek("earliest", partition=1)
    assert sorted(drain(queue)) == sorted([b"1h", b"1n", b"1l"] * 2)
    queue.seek("earliest", priority="low")
    assert sorted(drain(queue)) == [b"0l", b"0l", b"1l", b"1l"]
    queue.seek("earliest", partition=0, priority="high")
    assert drain(queue) == [b"0h", b"0h"]
    queue.seek(offset=1)
    assert sorted(drain(queue)) == [b"0n", b"1n"]
    queue.seek(offset=1, priority="low", partition=1)
    assert drain(queue) == [b"1l"]
    queue.seek(timestamp=0, priority="high")
    assert sorted(drain(queue)) == [b"0h", b"0h", b"1h", b"1h"]


def test_an_offset_that_only_some_partitions_have(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put_many([quivermq.Message(b"%d" % n, partition=0) for n in range(5)])
    queue.put(b"lone", partition=1)
    drain(queue)
    queue.seek(offset=3)
    assert drain(queue) == [b"3", b"4"]


def test_only_the_group_moves(store: Store, queue: quivermq.Queue) -> None:
    other = store.queue(group="other")
    drain(queue)
    drain(other)
    queue.seek("earliest")
    assert other.get() is None
    assert drain(queue) == numbers(0)


def test_a_new_group_may_begin_with_a_seek(store: Store, queue: quivermq.Queue) -> None:
    late = store.queue(group="late")
    late.seek("latest")
    queue.put(b"new")
    assert drain(late) == [b"new"]


@pytest.mark.parametrize("way", ["reopen", "kill"])
def test_a_seek_survives(store: Store, queue: quivermq.Queue, way: str) -> None:
    queue.get_many(5)
    queue.seek(offset=7)
    getattr(store, way)()
    assert drain(store.queue()) == numbers(7)


def test_earliest_is_where_the_log_begins(store: Store) -> None:
    queue = store.queue(segment_messages=1, retention_messages=2)
    for n in range(6):
        queue.put(b"%d" % n)
    store.engine.compact()
    queue.seek("earliest")
    left = values(queue.read())
    assert queue.stats().pending == len(left)
    assert drain(queue) == left
    with pytest.raises(quivermq.OffsetOutOfRange):
        queue.seek(offset=0)


def test_a_topic_without_messages(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.seek("earliest")
    queue.seek("latest")
    queue.seek(timestamp=0)
    queue.seek(offset=0)
    queue.put(b"x")
    assert drain(queue) == [b"x"]


def test_latest_counts_also_for_lanes_that_come_later(store: Store) -> None:
    queue = store.queue()
    queue.put(b"old")
    queue.seek("latest")
    queue.put(b"new", priority="high")
    assert drain(queue) == [b"new"]


def test_there_has_to_be_a_topic(store: Store) -> None:
    with pytest.raises(quivermq.TopicNotFound):
        store.queue("nowhere").seek("earliest")
    assert store.engine.topics() == []


def test_a_seek_to_where_expired_messages_end_is_kept_though_the_clock_goes_back(store: Store) -> None:
    """Passing over what expired needs no record; that somebody wanted to be behind it does."""
    queue = store.queue()
    queue.put(b"0", ttl=7)
    store.clock.advance(30)
    assert queue.get() is None
    queue.seek(offset=1)
    store.clock.jump(-30)
    store.kill()
    assert store.queue().get() is None
    store.queue().put(b"1")
    assert drain(store.queue()) == [b"1"]
