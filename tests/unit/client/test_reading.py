"""How far a consumer is: fetched, handed out, finished, committed."""

import pytest

from quivermq.client.consuming.calls import Page
from quivermq.client.consuming.reading import Reading
from quivermq.group.assignment import TopicPartition
from quivermq.model.lanes import Lane
from quivermq.model.messages import StoredMessage

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
NORMAL = Lane("t", 0, "normal")
KNOWN = {Lane("t", 0, "high"): 0, NORMAL: 5, Lane("t", 0, "low"): 0}


def messages(start: int, end: int, partition: int = 0) -> list[StoredMessage]:
    return [
        StoredMessage("t", partition, "normal", o, 0, None, b"%d" % o, {}, None, None)
        for o in range(start, end)
    ]


def fetch(reading: Reading, start: int, end: int, partition: int = 0) -> bool:
    lane = Lane("t", partition, "normal")
    wish = reading.wish(lane)
    assert wish is not None
    assert wish.offset == start
    return reading.fetched(lane, wish, Page(messages(start, end, partition), end))


def test_messages_pass_through_all_states() -> None:
    reading = Reading()
    reading.add(ZERO, {NORMAL: 5}, KNOWN)
    assert fetch(reading, 5, 8) is True
    assert reading.ahead(ZERO) == 3
    assert [m.offset for m in reading.take(2)] == [5, 6]
    assert reading.position(NORMAL) == 7
    assert reading.uncommitted() == {}
    reading.finish()
    assert reading.uncommitted() == {NORMAL: 7}
    reading.committed({NORMAL: 7})
    assert reading.uncommitted() == {}
    assert fetch(reading, 8, 8) is False


def test_a_fetch_that_is_not_wished_for_any_more_is_dropped() -> None:
    reading = Reading()
    reading.add(ZERO, {}, {})
    wish = reading.wish(NORMAL)
    assert wish is not None
    reading.seek(NORMAL, 0)
    assert reading.fetched(NORMAL, wish, Page(messages(0, 3), 3)) is False
    fetch(reading, 0, 3)
    # Another one, that began at the same time.
    again = wish._replace(version=wish.version + 1)
    assert reading.fetched(NORMAL, again, Page(messages(0, 3), 3)) is False
    assert reading.ahead(ZERO) == 3


def test_a_seek_drops_what_was_read_ahead() -> None:
    reading = Reading()
    reading.add(ZERO, {}, {})
    fetch(reading, 0, 3)
    reading.seek(NORMAL, 2)
    assert reading.take(9) == []
    fetch(reading, 2, 3)
    assert [m.offset for m in reading.take(9)] == [2]


def test_partitions_take_turns() -> None:
    reading = Reading()
    for partition in (ZERO, ONE):
        reading.add(partition, {}, {})
        fetch(reading, 0, 4, partition.partition)
    assert [[m.partition for m in reading.take(2)] for _ in range(4)] == [[0, 0], [1, 1], [0, 0], [1, 1]]


def test_a_partition_that_was_given_up_is_forgotten() -> None:
    reading = Reading()
    reading.add(ZERO, {NORMAL: 5}, KNOWN)
    fetch(reading, 5, 6)
    wish = reading.wish(NORMAL)
    assert wish is not None
    reading.take(1)
    reading.finish()
    reading.remove([ZERO])
    assert reading.partitions == frozenset()
    assert (reading.uncommitted(), reading.take(1), reading.wish(NORMAL)) == ({}, [], None)
    assert reading.fetched(NORMAL, wish, Page(messages(6, 7), 7)) is False
    with pytest.raises(KeyError):
        reading.position(NORMAL)


def test_a_beginning_that_the_broker_does_not_know_is_to_be_committed() -> None:
    reading = Reading()
    reading.add(ZERO, {NORMAL: 9}, KNOWN)
    assert reading.uncommitted() == {NORMAL: 9}
    reading.add(ONE, {}, {})
    assert reading.uncommitted([ONE]) == {Lane("t", 1, lane): 0 for lane in ("high", "normal", "low")}


def test_a_tail_that_nobody_gets_is_passed() -> None:
    reading = Reading()
    reading.add(ZERO, {NORMAL: 5}, KNOWN)
    fetch(reading, 5, 7)
    wish = reading.wish(NORMAL)
    assert wish is not None
    # Two more have expired, but what comes before them is not handed out yet.
    assert reading.fetched(NORMAL, wish, Page([], 9)) is False
    assert reading.position(NORMAL) == 5
    reading.take(2)
    assert reading.position(NORMAL) == 7
    fetch(reading, 9, 9)
    assert reading.position(NORMAL) == 9
    # What was handed out before is finished no sooner than it would be without them.
    assert reading.uncommitted() == {}
    reading.finish()
    assert reading.uncommitted() == {NORMAL: 9}


def test_what_is_ready_in_another_lane_does_not_hold_up_a_tail() -> None:
    reading = Reading()
    reading.add(ZERO, {NORMAL: 5}, KNOWN)
    fetch(reading, 5, 6)
    low = Lane("t", 0, "low")
    wish = reading.wish(low)
    assert wish is not None
    reading.fetched(low, wish, Page([], 3))
    assert (reading.position(low), reading.position(NORMAL)) == (3, 5)


def test_a_partition_that_is_taken_over_again_is_another_one() -> None:
    reading = Reading()
    first = reading.add(ZERO, {}, {})
    assert reading.has(first)
    reading.remove([ZERO])
    assert not reading.has(first)
    second = reading.add(ZERO, {}, {})
    assert (reading.has(first), reading.has(second)) == (False, True)


def test_a_seek_is_committed_with_the_next_commit() -> None:
    reading = Reading()
    reading.add(ZERO, {NORMAL: 5}, KNOWN)
    reading.seek(NORMAL, 2)
    assert reading.uncommitted() == {NORMAL: 2}
