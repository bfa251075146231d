"""What comes due, and what is renewed together."""

from typing import Any

from quivermq.queue.due import Periodic, Renewal, by_queue


def test_things_are_due_a_period_after_they_were() -> None:
    periodic: Periodic[str] = Periodic()
    assert periodic.next_due is None
    periodic.add(1, "a", 10, now=0)
    periodic.add(2, "b", 1, now=0)
    assert periodic.next_due == 1
    assert periodic.take_due(0.5) == []
    assert periodic.take_due(10) == ["a", "b"]
    assert periodic.next_due == 11
    periodic.remove(2)
    periodic.remove(2)
    assert periodic.next_due == 20


def test_a_lease_is_renewed_after_a_third_of_its_time() -> None:
    assert Renewal("orders", 30, list).period_s == 10


def test_renewals_of_one_queue_and_length_are_one() -> None:
    orders, other = object(), object()
    renewals = [
        Renewal(orders, 30, lambda: ["a", "b"]),
        Renewal(other, 30, lambda: ["c"]),
        Renewal(orders, 30, lambda: ["d"]),
        Renewal(orders, 60, lambda: ["e"]),
    ]
    joined = by_queue(renewals)
    assert [(each.queue is orders, each.lease_s, each.find()) for each in joined] == [
        (True, 30, ["a", "b", "d"]),
        (False, 30, ["c"]),
        (True, 60, ["e"]),
    ]


def unreadable() -> list[Any]:
    raise ValueError("a bad frame")


def test_what_cannot_be_found_keeps_no_other_from_being_renewed() -> None:
    (joined,) = by_queue([Renewal("orders", 30, unreadable), Renewal("orders", 30, lambda: ["a"])])
    assert joined.find() == ["a"]
