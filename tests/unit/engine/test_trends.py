"""Where the disk goes, and how it does lately."""

import pytest

from quivermq.engine.trends import Trends
from quivermq.metrics import Histogram

MINUTE_US = 60_000_000


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
