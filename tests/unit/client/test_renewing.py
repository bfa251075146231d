"""What comes due, and what is renewed together."""

import asyncio
from typing import Any

from support.manual_clock import ManualClock

from quivermq.client.asynchronous.renewal import AsyncRenewer
from quivermq.client.blocking.renewal import Renewer
from quivermq.client.core.holding import Holding
from quivermq.client.core.renewing import Renewal, by_queue


def test_things_are_due_a_period_after_they_were() -> None:
    holding: Holding[str] = Holding()
    assert holding.next_due is None
    holding.hold(1, "a", 10, now=0)
    holding.hold(2, "b", 1, now=0)
    assert holding.next_due == 1
    assert holding.take_due(0.5) == []
    assert holding.take_due(10) == ["a", "b"]
    assert holding.next_due == 11
    holding.release(2)
    holding.release(2)
    assert holding.next_due == 20


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


class BrokenQueue:
    """Cannot extend anything."""

    def __init__(self) -> None:
        self.asked = 0

    def extend(self, *_: object) -> Any:
        self.asked += 1
        raise ValueError("a bug")


def test_a_renewal_that_fails_in_any_way_ends_no_other() -> None:
    queue: Any = BrokenQueue()
    Renewer(ManualClock())._extend(Renewal(queue, 30, list))
    asyncio.run(AsyncRenewer(ManualClock())._extend(Renewal(queue, 30, list)))
    assert queue.asked == 2
