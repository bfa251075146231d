"""The state of a group, in one word."""

import pytest

from quivermq.engine.group_state import MINUTE_US, Load, Pace, state_of

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
