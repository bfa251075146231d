"""Two minutes of work, or an hour with `--soak-seconds=3600`, with a million delayed messages waiting.

It is a part of `make test` by itself: it mostly sleeps, but it wants to be woken in time.
"""

import json

import pytest
from support.fault_record import MakeTrial

from quivermq.chaos.cases import soak


@pytest.mark.timeout(36_000)
@pytest.mark.fault("soak", "broker")
def test_memory_is_bounded_and_nothing_comes_late(
    make_trial: MakeTrial, request: pytest.FixtureRequest
) -> None:
    measured = soak.soak(make_trial(), request.config.getoption("--soak-seconds"))
    print(json.dumps({**vars(measured), "rss_bytes": max(measured.rss_bytes)}, indent=1))
    measured.check()
