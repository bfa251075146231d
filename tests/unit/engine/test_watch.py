"""What looks at the queue remember of each other."""

import pytest

from quivermq.engine.activity import GroupActivity, TopicActivity
from quivermq.engine.watch import MINUTE_US, ChangeTracker, Done, Load, Pace, Rise, Trends, state_of
from quivermq.metrics import Histogram

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


# The state of a group, in one word.


NOW = 100 * MINUTE_US
OLD = NOW - 2 * MINUTE_US
JUST = NOW - 1_000_000
BUSY = Pace(moved_us=JUST, taken=100, mark_us=NOW - MINUTE_US, mark_pending=500)


@pytest.mark.parametrize(
    ("load", "pace", "state"),
    [
        (Load(0, 0, 0, 0, 0), Pace(), "idle"),
        (Load(0, 0, 0, 0, 0), BUSY, "idle"),
        (Load(5, 0, 0, 0, JUST), Pace(), "waiting"),
        (Load(5, 0, 0, 0, OLD), Pace(), "stalled"),
        (Load(5, 0, 0, 0, OLD), Pace(moved_us=OLD), "stalled"),
        # Somebody works on one, however long that takes.
        (Load(5, 1, 0, 0, OLD), Pace(), "consuming"),
        (Load(0, 1, 0, 0, OLD), Pace(), "consuming"),
        (Load(0, 0, 3, 0, OLD), Pace(), "waiting"),
        (Load(0, 0, 0, 3, OLD), Pace(), "waiting"),
        (Load(5, 0, 0, 0, OLD), BUSY, "consuming"),
        (Load(100, 0, 0, 0, OLD), BUSY, "consuming"),
        (Load(101, 0, 0, 0, OLD), BUSY, "catching_up"),
        (Load(500, 0, 0, 0, OLD), BUSY, "falling_behind"),
        (Load(900, 9, 0, 0, OLD), BUSY, "falling_behind"),
    ],
)
def test_the_state_says_what_a_group_does(load: Load, pace: Pace, state: str) -> None:
    assert state_of(load, pace, NOW) == state


# Where the disk goes, and how it does lately.


def test_the_room_that_there_will_be_is_on_the_line_through_the_last_hour() -> None:
    trends = Trends()
    trends.see(100_000, [], 0)
    assert trends.free_bytes_in(60) is None
    for minute in range(1, 100):
        # Every few seconds somebody looks; a point a minute is kept.
        trends.see(100_000 - 600 * minute, [], minute * MINUTE_US)
        trends.see(0, [], minute * MINUTE_US + 5_000_000)
    assert trends.free_bytes_in(0) == pytest.approx(100_000 - 600 * 99)
    assert trends.free_bytes_in(600) == pytest.approx(100_000 - 600 * 109)


def test_slow_syncs_are_forgotten_after_some_minutes() -> None:
    trends, syncs = Trends(), Histogram("x_seconds", "")
    assert trends.sync_p99_s() is None
    trends.see(1, syncs.tally(), 0)
    assert trends.sync_p99_s() is None
    syncs.observe(2.0)
    trends.see(1, syncs.tally(), 1)
    assert trends.sync_p99_s() == pytest.approx(2.0, rel=0.2)
    for minute in range(1, 8):
        syncs.observe(0.001)
        trends.see(1, syncs.tally(), minute * MINUTE_US)
    assert trends.sync_p99_s() == pytest.approx(0.001, rel=0.2)
