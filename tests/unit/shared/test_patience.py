"""A store that does not answer is asked again, for a while."""

from dataclasses import replace

import pytest
from support.manual_clock import ManualClock
from support.shared import LIMITS

from quivermq.errors import StoreDenied, StoreUnreachable
from quivermq.shared.patience import patiently


def test_it_is_asked_again_until_it_answers() -> None:
    answers = iter([StoreUnreachable("once"), StoreUnreachable("twice"), None])
    asked = []

    def act() -> str:
        asked.append(1)
        error = next(answers)
        if error is not None:
            raise error
        return "answer"

    assert patiently(act, LIMITS, ManualClock()) == "answer"
    assert len(asked) == 3


def test_it_is_not_asked_for_longer_than_a_sync_waits() -> None:
    clock = ManualClock()
    asked = []

    def act() -> None:
        asked.append(1)
        clock.advance(3)
        raise StoreUnreachable("never")

    with pytest.raises(StoreUnreachable, match="never"):
        patiently(act, replace(LIMITS, commit_timeout_s=5), clock)
    assert len(asked) == 2


def test_what_time_does_not_heal_is_said_at_once() -> None:
    asked = []

    def act() -> None:
        asked.append(1)
        raise StoreDenied("no")

    with pytest.raises(StoreDenied):
        patiently(act, LIMITS, ManualClock())
    assert asked == [1]
