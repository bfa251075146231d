"""A group over all partitions and lanes of a topic."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.queues import SECOND, START_US, Parts

from quivermq.delivery.cursor import Cursor
from quivermq.delivery.taken import Taken, deliveries_of
from quivermq.errors import Closing, Corruption, StorageFailed
from quivermq.group.group import Group, GroupCounts
from quivermq.group.waiters import Waiter
from quivermq.model.deliveries import Delivery
from quivermq.model.topic_settings import TopicSettings

HIGH, NORMAL, LOW = range(3)


class Place:
    """A group, and the partitions that it reads."""

    def __init__(self, parts: Parts, **settings: Any) -> None:
        self.parts = parts
        self.settings = TopicSettings.make({"durability": "os", **settings}, parts.storage)
        self.partitions = [parts.partition(number) for number in range(8)]
        self.group = Group("billing", self.settings, parts.clock, self.open_cursor)

    def open_cursor(self, number: int, group: Group) -> Cursor:
        return self.parts.cursor(self.partitions[number], group.name)

    def put(self, count: int, *, partition: int = 0, lane: int = NORMAL) -> None:
        for _ in range(count):
            self.partitions[partition].log(lane).append(b"%d" % lane)

    def take(self, count: int = 100, **how: Any) -> list[Delivery]:
        return deliveries_of(self.group.take(count, None, **how))


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.close()


def lanes(deliveries: list[Delivery]) -> str:
    return "".join(delivery.priority[0] for delivery in deliveries)


def test_there_is_a_cursor_for_each_partition(parts: Parts) -> None:
    place = Place(parts, partitions=3)
    assert [cursor.partition for cursor in place.group.cursors.values()] == [0, 1, 2]
    assert place.take() == []


@pytest.mark.parametrize("count", [1, 2, 5, 100])
def test_every_message_of_every_partition_and_lane_comes_once(parts: Parts, count: int) -> None:
    place = Place(parts, partitions=3)
    for partition in range(3):
        for lane in (HIGH, NORMAL, LOW):
            place.put(4, partition=partition, lane=lane)
    found: list[Delivery] = []
    while more := place.take(count):
        assert len(more) <= count
        found += more
    assert len({delivery.receipt for delivery in found}) == len(found) == 36
    for partition in range(3):
        for priority in ("high", "normal", "low"):
            offsets = [d.offset for d in found if (d.partition, d.priority) == (partition, priority)]
            assert offsets == [0, 1, 2, 3]


def test_a_batch_is_full_when_there_is_enough(parts: Parts) -> None:
    place = Place(parts, partitions=3)
    for partition in range(3):
        place.put(5, partition=partition)
    place.put(1, partition=2, lane=LOW)
    assert len(place.take(16)) == 16


def test_partitions_take_turns(parts: Parts) -> None:
    place = Place(parts, partitions=3)
    for partition in range(3):
        place.put(2, partition=partition)
    assert sorted(place.take(1)[0].partition for _ in range(3)) == [0, 1, 2]


def test_lanes_are_served_by_weight(parts: Parts) -> None:
    place = Place(parts)
    for lane in (HIGH, NORMAL, LOW):
        place.put(30, lane=lane)
    found = lanes([place.take(1)[0] for _ in range(26)])
    assert {lane: found.count(lane) for lane in "hnl"} == {"h": 16, "n": 8, "l": 2}
    assert sorted(lanes(place.take(13))) == sorted("h" * 8 + "n" * 4 + "l")


def test_weights_can_be_changed(parts: Parts) -> None:
    place = Place(parts, priority_weights="strict")
    for lane in (HIGH, NORMAL, LOW):
        place.put(10, lane=lane)
    assert lanes(place.take(12)) == "h" * 10 + "nn"
    place.put(10, lane=HIGH)
    place.group.configure(place.settings.changed({"priority_weights": [1, 1, 1]}))
    found = lanes(place.take(9))
    assert {lane: found.count(lane) for lane in "hnl"} == {"h": 3, "n": 3, "l": 3}


def test_a_lane_with_nothing_to_give_does_not_hide_another(parts: Parts) -> None:
    place = Place(parts)
    place.partitions[0].log(HIGH).append(b"expired", expires_at=START_US + 1)
    place.put(1, lane=LOW)
    parts.wall.advance(1)
    assert lanes(place.take(1)) == "l"


def test_a_group_goes_by_the_lease_of_its_topic_unless_told(parts: Parts) -> None:
    place = Place(parts, lease_ms=5000)
    place.put(3)
    place.take(1)
    place.group.take(1, 2 * SECOND)
    assert place.group.next_event() == START_US + 2 * SECOND
    parts.wall.advance(2)
    place.group.expire(parts.now)
    assert place.group.counts() == GroupCounts(pending=1, in_flight=1, retrying=1, waiting_for_key=0)
    place.group.configure(place.settings.changed({"lease_ms": 1000}))
    place.take(1)
    parts.wall.advance(1)
    place.group.expire(parts.now)
    assert place.group.counts() == GroupCounts(pending=1, in_flight=1, retrying=1, waiting_for_key=0)


def test_new_partitions_are_read_as_well(parts: Parts) -> None:
    place = Place(parts)
    place.put(1, partition=2)
    assert place.take() == []
    before = place.group.cursors[0]
    place.group.configure(place.settings.changed({"partitions": 3}))
    assert place.group.cursors[0] is before
    assert [delivery.partition for delivery in place.take()] == [2]


def test_everything_is_counted_over_partitions_and_lanes(parts: Parts) -> None:
    place = Place(parts, partitions=2)
    place.put(3, partition=0)
    place.put(2, partition=1, lane=HIGH)
    one, two = place.take(2)
    one.nack(5)
    counts = place.group.counts()
    assert counts == GroupCounts(pending=3, in_flight=1, retrying=1, waiting_for_key=0)
    assert counts.unfinished == 5
    two.ack()
    assert place.group.counts().unfinished == 4
    floors = place.group.floors()
    assert (len(floors), sum(map(sum, floors.values()))) == (2, 1)
    assert place.group.next_event() == START_US + 5 * SECOND


def test_popped_messages_are_done(parts: Parts) -> None:
    place = Place(parts, partitions=2)
    place.put(2, partition=0)
    place.put(2, partition=1, lane=LOW)
    assert len(place.take(3, pop=True)) == 3
    assert place.group.counts() == GroupCounts(pending=1, in_flight=0, retrying=0, waiting_for_key=0)


def test_a_partition_that_cannot_be_read_keeps_nobody_from_the_others(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rotten(*_: Any, **__: Any) -> list[Taken]:
        raise Corruption("rotten", path=parts.directory.path, position=0, offsets=(0, 1))

    place = Place(parts, partitions=3)
    for partition in range(3):
        place.put(2, partition=partition)
    monkeypatch.setattr(place.group.cursors[1], "take", rotten)
    found = [place.take(1)[0].partition for _ in range(4)]
    assert sorted(found) == [0, 0, 2, 2]
    with pytest.raises(StorageFailed, match="rotten"):
        place.take(1)


def test_a_closed_group_wakes_everybody_and_gives_nothing(parts: Parts) -> None:
    place = Place(parts)
    place.put(1)
    woken: list[int] = []
    place.group.waiters.waiting += [Waiter(lambda: woken.append(1)) for _ in range(3)]
    place.group.close()
    assert woken == [1, 1, 1]
    with pytest.raises(Closing):
        place.take()


def test_what_has_waited_too_long_goes_before_what_is_urgent(parts: Parts) -> None:
    place = Place(parts, priority_weights="strict", priority_age_ms=10_000)
    place.put(2, lane=LOW)
    parts.wall.advance(10 - 1e-6)
    place.put(3, lane=HIGH)
    assert lanes(place.take(1)) == "h"
    parts.wall.advance(1e-6)
    place.put(1, lane=LOW)
    # The third low one is young, and waits for the high ones.
    assert lanes(place.take(10)) == "llhhl"


def test_without_an_age_strict_lets_a_lane_wait_for_ever(parts: Parts) -> None:
    place = Place(parts, priority_weights="strict")
    place.put(1, lane=LOW)
    parts.wall.advance(1_000_000)
    place.put(2, lane=HIGH)
    assert lanes(place.take(10)) == "hhl"


def test_of_lanes_that_are_late_the_oldest_message_goes_first(parts: Parts) -> None:
    place = Place(parts, priority_weights="strict", priority_age_ms=1000)
    for lane in (LOW, NORMAL, HIGH):
        place.put(1, lane=lane)
        parts.wall.advance(1)
    place.put(1, lane=HIGH)
    assert [lanes(place.take(1)) for _ in range(4)] == ["l", "n", "h", "h"]


def test_a_partition_that_is_late_does_not_wait_for_one_that_is_not(parts: Parts) -> None:
    place = Place(parts, partitions=2, priority_weights="strict", priority_age_ms=1000)
    place.put(1, partition=1, lane=LOW)
    parts.wall.advance(2)
    place.put(1, partition=0, lane=LOW)
    place.put(2, partition=0, lane=HIGH)
    for _ in range(2):
        late = place.take(1)
        assert (lanes(late), late[0].partition) == ("l", 1)
        late[0].release()
    late = place.take(1)
    late[0].ack()
    assert lanes(place.take(10)) == "hhl"


def test_a_message_that_was_given_back_is_as_old_as_it_was_put(parts: Parts) -> None:
    place = Place(parts, priority_weights="strict", priority_age_ms=1000)
    place.put(1, lane=LOW)
    (young,) = place.take(1)
    young.release()
    place.put(1, lane=HIGH)
    (urgent,) = place.take(1)
    assert urgent.priority == "high"
    urgent.release()
    parts.wall.advance(0.5)
    place.put(1, lane=HIGH)
    assert lanes(place.take(1)) == "h"
    parts.wall.advance(0.5)
    assert lanes(place.take(1)) == "l"


def test_the_age_can_be_changed_and_taken_away(parts: Parts) -> None:
    place = Place(parts, priority_weights="strict", priority_age_ms=1000)
    place.put(3, lane=LOW)
    parts.wall.advance(2)
    place.put(3, lane=HIGH)
    assert lanes(place.take(1)) == "l"
    place.group.configure(place.settings.changed({"priority_age_ms": None}))
    assert lanes(place.take(1)) == "h"
    place.group.configure(place.settings.changed({"priority_age_ms": 1}))
    assert lanes(place.take(1)) == "l"


@pytest.mark.parametrize("whole", [False, True])
def test_ageing_gives_every_message_once(parts: Parts, whole: bool) -> None:
    place = Place(parts, partitions=2, priority_weights="strict", priority_age_ms=1000)
    found: list[Delivery] = []
    for _ in range(5):
        for lane in (HIGH, NORMAL, LOW):
            place.put(7, partition=lane % 2, lane=lane)
        parts.wall.advance(0.4)
        found += place.take(9, whole=whole)
    while more := place.take(9, whole=whole):
        found += more
    assert len({delivery.receipt for delivery in found}) == len(found) == 105
