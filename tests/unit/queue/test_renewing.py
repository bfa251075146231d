"""Leases that are kept: what is due is extended, and one that fails ends no other."""

from types import SimpleNamespace
from typing import Any

from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from unit.queue.deliveries import delivery

from quivermq.errors import QuiverError
from quivermq.model.deliveries import Delivery
from quivermq.queue.due import Renewal
from quivermq.queue.renewing import Renewer


class Extended:
    """As much of a queue as a renewer calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.extended: list[tuple[list[Delivery], float]] = []
        self.released: list[Any] = []

    def extend(self, held: list[Delivery], seconds: float) -> None:
        self.extended.append((held, seconds))
        if self.error is not None:
            raise self.error

    def release_quietly(self, held: list[Any]) -> None:
        self.released += held


class Time:
    """A renewer whose clock the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        backend: Any = SimpleNamespace(clock=self.clock, scheduler=self.scheduler)
        self.renewer = Renewer(backend)

    def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.scheduler.run_due()


def test_a_renewal_that_fails_in_any_way_ends_no_other() -> None:
    time, message = Time(), delivery(0)
    broken: Any = Extended(ValueError("a bug"))
    away: Any = Extended(QuiverError("no answer"))
    works: Any = Extended()
    for queue in (broken, away, works):
        time.renewer.renew(queue, Renewal(queue, 30, lambda: [message]))
    for count in (1, 2):
        time.passes(10)
        assert [queue.extended for queue in (broken, away, works)] == [[([message], 30)] * count] * 3


def test_what_is_settled_or_released_is_not_renewed() -> None:
    time, queue = Time(), Extended()
    settled, released, held = map(delivery, range(3))
    for message in (settled, released, held):
        time.renewer.hold(queue, message, 30)  # type: ignore[arg-type]
    settled.is_settled = True
    time.renewer.release(released)
    time.passes(10)
    assert queue.extended == [([held], 30)]


def test_what_is_held_by_itself_is_given_back_at_the_end() -> None:
    time, queue = Time(), Extended()
    settled, held, of_a_stream = map(delivery, range(3))
    some: Any = queue
    time.renewer.hold(some, settled, 30)
    time.renewer.hold(some, held, 30)
    time.renewer.renew("a stream", Renewal(some, 30, lambda: [of_a_stream]))
    settled.is_settled = True
    time.renewer.give_back()
    # By its receipt, so that it does not count as settled by whoever is at it.
    assert queue.released == [held.receipt]
    time.passes(10)
    assert queue.extended == [([of_a_stream], 30)]
