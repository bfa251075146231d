"""Priorities: lanes served by weight, so that nothing starves, or strictly."""

from collections import Counter
from typing import Any

import pytest
from unit.engine.store import Store, drain

import quivermq
from quivermq.model.lanes import PRIORITIES


def fill(queue: quivermq.Queue, count: int) -> None:
    for lane in PRIORITIES:
        queue.put_many([quivermq.Message(lane.encode(), priority=lane)] * count)


def served(queue: quivermq.Queue, count: int, at_once: int) -> Counter[str]:
    taken: list[quivermq.Delivery] = []
    while len(taken) < count:
        taken += queue.get_many(min(at_once, count - len(taken)))
    return Counter(message.priority for message in taken)


@pytest.mark.parametrize("at_once", [1, 7, 13, 1300])
@pytest.mark.parametrize("partitions", [1, 3])
def test_lanes_are_served_eight_to_four_to_one(store: Store, at_once: int, partitions: int) -> None:
    queue = store.queue(partitions=partitions, durability="os")
    fill(queue, 1000)
    assert served(queue, 1300, at_once) == {"high": 800, "normal": 400, "low": 100}


def test_no_lane_waits_long(store: Store) -> None:
    queue = store.queue()
    fill(queue, 100)
    first = [message.priority for _ in range(13) if (message := queue.get())]
    assert Counter(first) == {"high": 8, "normal": 4, "low": 1}
    assert "normal" in first[:4], "served in runs, not in turns"


@pytest.mark.parametrize("at_once", [1, 10])
def test_other_weights(store: Store, at_once: int) -> None:
    queue = store.queue(priority_weights=(1, 2, 7))
    fill(queue, 100)
    assert served(queue, 100, at_once) == {"high": 10, "normal": 20, "low": 70}


@pytest.mark.parametrize("weights", ["5:3:2", [5, 3, 2], {"high": 5, "normal": 3, "low": 2}])
def test_weights_may_be_written_in_many_ways(store: Store, weights: Any) -> None:
    queue = store.queue(priority_weights=weights)
    fill(queue, 20)
    assert served(queue, 20, 1) == {"high": 10, "normal": 6, "low": 4}


def test_strict_serves_the_highest_first(store: Store) -> None:
    queue = store.queue(priority_weights="strict", partitions=2)
    fill(queue, 5)
    assert drain(queue) == [b"high"] * 5 + [b"normal"] * 5 + [b"low"] * 5
    queue.put(b"low", priority="low")
    queue.put(b"high", priority="high")
    assert [message.value for _ in range(2) if (message := queue.get())] == [b"high", b"low"]


def test_strict_prefers_a_retry_of_the_highest(store: Store) -> None:
    queue = store.queue(priority_weights="strict")
    fill(queue, 1)
    first = queue.get()
    assert first is not None
    first.nack(delay=0)
    again = queue.get()
    assert again is not None
    assert (again.priority, again.attempt) == ("high", 2)


def test_weights_change_while_running(store: Store) -> None:
    queue = store.queue()
    fill(queue, 300)
    assert served(queue, 130, 1) == {"high": 80, "normal": 40, "low": 10}
    store.engine.alter_topic("orders", priority_weights=(1, 1, 1))
    assert served(queue, 90, 1) == {"high": 30, "normal": 30, "low": 30}
    store.engine.alter_topic("orders", priority_weights="strict")
    assert served(queue, 190, 1) == {"high": 190}


def test_the_turns_of_an_empty_lane_go_to_the_others(store: Store) -> None:
    queue = store.queue()
    queue.put_many([quivermq.Message(b"x", priority=lane) for lane in ("high", "low") for _ in range(90)])
    assert served(queue, 90, 1) == {"high": 80, "low": 10}


def test_a_lane_that_was_empty_for_long_has_not_saved_up_turns(store: Store) -> None:
    queue = store.queue()
    queue.put_many(
        [quivermq.Message(b"x", priority=lane) for lane in ("normal", "low") for _ in range(500)]
    )
    served(queue, 500, 1)
    queue.put_many([quivermq.Message(b"x", priority="high")] * 200)
    counts = served(queue, 130, 1)
    assert 76 <= counts["high"] <= 84
    assert 8 <= counts["low"] <= 12


def test_order_inside_a_lane(store: Store) -> None:
    queue = store.queue()
    for n in range(20):
        queue.put(b"%d" % n, priority=PRIORITIES[n % 3])
    taken = queue.get_many(100)
    for lane in PRIORITIES:
        offsets = [message.offset for message in taken if message.priority == lane]
        assert offsets == sorted(offsets)


def test_groups_have_their_own_turns(store: Store) -> None:
    fill(store.queue(), 100)
    for group in ("a", "b"):
        assert served(store.queue(group=group), 130, 1) == {"high": 80, "normal": 40, "low": 10}
