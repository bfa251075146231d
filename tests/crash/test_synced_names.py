"""The names of files, on a real disk: a broker that cannot sync a directory claims nothing that is in it.

A disk in memory shows what follows from each sync of a directory. That the broker asks the system for one
is seen here: only directories are synced with `fsync`, files with `fdatasync`.
"""

import pytest
from support.fault_record import MakeTrial

from quivermq.chaos import tracing
from quivermq.chaos.broker import broker
from quivermq.chaos.publisher import Publisher

pytestmark = [pytest.mark.fault("names", "broker"), pytest.mark.damages]

SEGMENT_MESSAGES = 2


def test_a_topic_or_a_segment_whose_name_is_not_synced_is_not_claimed(make_trial: MakeTrial) -> None:
    assert (reason := tracing.why_not()) is None, reason
    trial, publisher = make_trial(), Publisher("orders")
    log = trial.directory / "strace.txt"
    with (
        trial.nursery() as lives,
        broker(lives, trial.data, storage__segment_messages=SEGMENT_MESSAGES) as process,
    ):
        for _ in range(SEGMENT_MESSAGES):
            assert publisher.publish(process.caller()).is_done
        with tracing.failing(process.pid, "fsync", "EIO", "1+", log):
            # This one needs another segment, and that one another directory.
            refused = publisher.publish(process.caller())
            topic = process.caller().call("POST", "/v1/topics", {"name": "other"})
        assert (refused.code, topic.code) == ("fsync_failed", "fsync_failed")
        trial.tried += 2
        process.restart()
        publisher.check(process.caller())
        assert publisher.publish(process.caller()).is_done
