"""The names of files, on a real disk: a broker that cannot sync a directory claims nothing that is in it.

A disk in memory shows what follows from each sync of a directory. That the broker asks the system for one
is seen here: only directories are synced with `fsync`, files with `fdatasync`.
"""

import pytest
from support.fault_record import MakeTrial

from quivermq.chaos.http_clients import Publisher
from quivermq.chaos.system_faults import failing_calls, why_no_tracing

pytestmark = [pytest.mark.fault("names", "broker"), pytest.mark.damages]

SEGMENT_MESSAGES = 2


def test_a_topic_or_a_segment_whose_name_is_not_synced_is_not_claimed(make_trial: MakeTrial) -> None:
    assert (reason := why_no_tracing()) is None, reason
    trial, publisher = make_trial(), Publisher("orders")
    log = trial.directory / "strace.txt"
    with trial.broker(storage__segment_messages=SEGMENT_MESSAGES) as process:
        for _ in range(SEGMENT_MESSAGES):
            assert publisher.publish(process.client()).is_done
        with failing_calls(process.pid, "fsync", "EIO", "1+", log):
            # This one needs another segment, and that one another directory.
            refused = publisher.publish(process.client())
            topic = process.client().call("POST", "/v1/topics", {"name": "other"})
        assert (refused.code, topic.code) == ("fsync_failed", "fsync_failed")
        trial.tried += 2
        process.restart()
        publisher.check(process.client())
        assert publisher.publish(process.client()).is_done
