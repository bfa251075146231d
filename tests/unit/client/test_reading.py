"""How far a consumer is: fetched, handed out, finished, committed."""

import pytest

from quivermq.client.consuming.calls import Page, Place
from quivermq.client.consuming.reading import Reading
from quivermq.engine.looking import StoredMessage
from quivermq.group.assignment import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
NORMAL = Place("t", 0, "normal")


def messages(start: int, end: int, partition: int = 0) -> list[StoredMessage]:
    return [
        StoredMessage("t", partition, "normal", o, 0, None, b"%d" % o, {}, None, None)
        for o in range(start, end)
    ]


def fetch(reading: Reading, start: int, end: int, partition: int = 0) -> bool:
    place = Place("t", partition, "normal")
    wish = reading.wish(place)
    assert wish is not None
    assert wish.offset == start
    return reading.fetched(place, wish, Page(messages(start, end, partition), end))


def test_messages_pass_through_all_states() -> None:
    reading = Reading()
    reading.add(ZERO, {NORMAL: 5})
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
    reading.add(ZERO, {})
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
    reading.add(ZERO, {})
    fetch(reading, 0, 3)
    reading.seek(NORMAL, 2)
    assert reading.take(9) == []
    fetch(reading, 2, 3)
    assert [m.offset for m in reading.take(9)] == [2]


def test_partitions_take_turns() -> None:
    reading = Reading()
    for partition in (ZERO, ONE):
        reading.add(partition, {})
        fetch(reading, 0, 4, partition.partition)
    assert [[m.partition for m in reading.take(2)] for _ in range(4)] == [[0, 0], [1, 1], [0, 0], [1, 1]]


def test_a_partition_that_was_given_up_is_forgotten() -> None:
    reading = Reading()
    reading.add(ZERO, {NORMAL: 5})
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
