"""Not faster than told, and evenly."""

from support.manual_clock import ManualClock

from quivermq.spark.sink.options import Throttle


def test_without_a_rate_nothing_waits() -> None:
    assert Throttle(None).wait_s(10**9) == 0
    assert Throttle(None).frame_messages(10_000) == 10_000


def test_each_frame_waits_for_those_before_it() -> None:
    clock = ManualClock()
    pace = Throttle(100, clock)
    assert [pace.wait_s(50) for _ in range(3)] == [0, 0.5, 1.0]
    clock.advance(1.25)
    assert pace.wait_s(1) == 0.25
    # What was not used is lost: there is no burst after a pause.
    clock.advance(60)
    assert [pace.wait_s(50) for _ in range(2)] == [0, 0.5]


def test_frames_are_smaller_where_the_rate_is() -> None:
    assert Throttle(1000).frame_messages(10_000) == 100
    assert Throttle(0.5).frame_messages(10_000) == 1
