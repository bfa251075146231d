"""A moment that somebody names is meant by the clock as it is set then, also after somebody has set it."""

import pytest
from support.fault_record import MakeTrial

from quivermq.chaos.cases.clients import JUMPS_S
from quivermq.chaos.processes import broker
from quivermq.chaos.system_faults import JumpingClock

pytestmark = pytest.mark.fault("clock", "broker")

DELAY_US = 200_000


def test_it_comes_at_that_moment_and_not_before(make_trial: MakeTrial) -> None:
    trial = make_trial()
    path = trial.directory / "clock"
    clock = JumpingClock(path)
    with trial.process_pool() as pool, broker(pool, trial.data, clock=path) as process:
        caller = process.client()
        for jump_s in sorted(JUMPS_S):
            clock.set(jump_s)
            due_us = clock.now_us() + DELAY_US
            assert caller.publish("orders", f"{jump_s}", deliver_at=due_us).is_done
            came = caller.receive("orders", "billing", wait_ms=10_000)
            assert [message["value"] for message in came] == [f"{jump_s}"]
            assert clock.now_us() >= due_us
            trial.tried += 1
