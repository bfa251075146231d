import pytest
from support.manual_clock import ManualClock

from quivermq.errors import InvalidRequest
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.frontier import BatchDelay


def patience(clock: ManualClock, **options: str) -> BatchDelay:
    return BatchDelay.of(SourceOptions.parse(options), clock)


def test_a_batch_waits_until_it_is_worth_it_or_too_late() -> None:
    clock = ManualClock()
    waiting = patience(clock, minoffsetspertrigger="10", maxtriggerdelay="30s")
    # The first one begins with whatever there is.
    assert [waiting.waits(rows) for rows in (1, 9, 10, 9)] == [False, True, False, True]
    clock.advance(29)
    assert waiting.waits(9)
    clock.advance(1)
    assert not waiting.waits(9)
    assert waiting.waits(9)
    assert not patience(clock).waits(0)


def test_what_makes_no_sense_is_refused() -> None:
    for options, reason in (
        ({"minoffsetspertrigger": "5", "maxoffsetspertrigger": "4"}, "more than"),
        ({"maxtriggerdelay": "5s"}, "is for `minOffsetsPerTrigger`"),
        ({"minoffsetspertrigger": "5", "maxtriggerdelay": "soon"}, "a length of time"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            patience(ManualClock(), **options)
