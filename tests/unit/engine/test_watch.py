"""What looks at the queue remember of each other."""

from quivermq.engine.activity import GroupActivity, TopicActivity
from quivermq.engine.group_state import MINUTE_US, Pace
from quivermq.engine.watch import ChangeTracker, Done, Rise

T0 = 1_000 * MINUTE_US
SECOND_US = 1_000_000


def seen(
    watch: ChangeTracker, now_us: int, *, delivered: int = 0, pending: int = 0, buried: int = 0
) -> None:
    had = GroupActivity(delivered, delivered, 0, dead_lettered=buried)
    watch.see({"orders": TopicActivity(0, {"billing": had})}, {("orders", "billing"): pending}, {}, now_us)


def test_a_rise_is_that_of_the_window_and_no_more() -> None:
    rise = Rise(100, T0)
    for minute in range(1, 31):
        rise.see(100 + minute, T0 + minute * MINUTE_US)
    now_us = T0 + 30 * MINUTE_US
    assert rise.within(5 * MINUTE_US, now_us) in (5, 6)
    assert rise.within(15 * MINUTE_US, now_us) in (15, 16)
    assert rise.within(60 * MINUTE_US, now_us) <= 17


def test_a_counter_that_began_anew_rose_from_nothing() -> None:
    rise = Rise(100, T0)
    rise.see(3, T0 + MINUTE_US)
    assert rise.within(5 * MINUTE_US, T0 + MINUTE_US) == 3


def test_what_was_counted_before_anybody_looked_did_not_rise() -> None:
    watch = ChangeTracker()
    seen(watch, T0, buried=346)
    assert watch.risen("dead_lettered", 15 * MINUTE_US, T0) == {}
    seen(watch, T0 + SECOND_US, buried=348)
    assert watch.risen("dead_lettered", 15 * MINUTE_US, T0 + SECOND_US) == {("orders", "billing"): 2}
    seen(watch, T0 + 20 * MINUTE_US, buried=348)
    seen(watch, T0 + 40 * MINUTE_US, buried=348)
    assert watch.risen("dead_lettered", 15 * MINUTE_US, T0 + 40 * MINUTE_US) == {}


def test_what_comes_up_later_rose_from_nothing() -> None:
    watch = ChangeTracker()
    watch.see({}, {}, {"server_errors": 0}, T0)
    watch.see({}, {}, {"server_errors": 4}, T0 + SECOND_US)
    assert watch.rise("server_errors", 5 * MINUTE_US, T0 + SECOND_US) == 4
    assert watch.rise("server_errors", 5 * MINUTE_US, T0 + SECOND_US, "orders") == 0


def test_a_group_moves_when_its_counters_do() -> None:
    watch = ChangeTracker()
    assert watch.pace("orders", "billing") == Pace()
    seen(watch, T0, pending=50)
    assert watch.pace("orders", "billing").moved_us is None
    seen(watch, T0 + 5 * SECOND_US, delivered=10, pending=40)
    assert watch.pace("orders", "billing") == Pace(T0 + 5 * SECOND_US, 10, T0, 50)
    # The mark moves on, and is never younger than half a minute once there is one.
    seen(watch, T0 + 40 * SECOND_US, delivered=20, pending=30)
    seen(watch, T0 + 50 * SECOND_US, delivered=20, pending=30)
    assert watch.pace("orders", "billing") == Pace(T0 + 40 * SECOND_US, 20, T0, 50)
    seen(watch, T0 + 75 * SECOND_US, delivered=21, pending=29)
    assert watch.pace("orders", "billing") == Pace(T0 + 75 * SECOND_US, 1, T0 + 40 * SECOND_US, 30)


def test_what_was_done_since_the_last_look_counts() -> None:
    watch, now = ChangeTracker(), T0 + 5 * SECOND_US
    assert watch.pace("orders", "billing", Done(0, 0, now)) == Pace()
    assert watch.pace("orders", "billing", Done(7, 0, now)) == Pace(now)
    seen(watch, T0, delivered=10, pending=50)
    assert watch.pace("orders", "billing", Done(10, 10, now)) == Pace(T0, 0, T0, 50)
    assert watch.pace("orders", "billing", Done(10, 11, now)) == Pace(now, 0, T0, 50)
    assert watch.pace("orders", "billing", Done(25, 10, now)) == Pace(now, 15, T0, 50)


def test_what_is_gone_is_forgotten() -> None:
    watch = ChangeTracker()
    seen(watch, T0, delivered=10, buried=3)
    watch.see({}, {}, {}, T0 + SECOND_US)
    assert watch.pace("orders", "billing") == Pace()
    assert not watch._rises


def test_it_is_known_since_when_something_is_found_at_every_look() -> None:
    watch = ChangeTracker()
    watch.see({}, {}, {}, T0)
    assert watch.since([("a",)], T0) == {("a",): (T0, True)}
    assert watch.since([("a",), ("b",)], T0 + 1) == {("a",): (T0, True), ("b",): (T0 + 1, False)}
    watch.since([], T0 + 2)
    assert watch.since([("a",)], T0 + 3) == {("a",): (T0 + 3, False)}
