"""A real broker on a disk that is full to the last byte, where nothing warns it in time."""

import os
from pathlib import Path

import pytest
from support.fault_record import MakeTrial

from quivermq.chaos import wait_until
from quivermq.chaos.http_clients import Publisher
from quivermq.chaos.system_faults import seen_by, why_no_small_disk

pytestmark = [pytest.mark.fault("full", "broker"), pytest.mark.damages]

DISK_BYTES = 4 * 1024 * 1024


def fill(ballast: Path) -> None:
    room = os.statvfs(ballast.parent)
    with ballast.open("wb") as file:
        file.write(b"\0" * (room.f_bavail * room.f_frsize))


def test_what_does_not_fit_is_refused_and_nothing_of_it_stays(make_trial: MakeTrial) -> None:
    assert (reason := why_no_small_disk()) is None, reason
    trial, publisher = make_trial(2), Publisher("orders")
    settings = {"engine__free_bytes_min": 0, "engine__maintenance_interval_ms": 50}
    with trial.broker(disk_bytes=DISK_BYTES, **settings) as process:
        client = process.client()
        ballast = seen_by(process.pid, trial.data) / "ballast"
        for _ in range(trial.cycles):
            assert publisher.publish(client).is_done
            fill(ballast)
            # What fits into the last page of the file is still taken; then a frame is torn.
            wait_until(lambda: not publisher.publish(client).is_done, "nothing is refused")
            answer = publisher.publish(client)
            assert answer.code == "disk_full"
            assert answer.document["error"]["retryable"]
            publisher.check(client)
            ballast.unlink()
            # The broker looks now and then whether there is room.
            wait_until(lambda: publisher.publish(client).is_done, "it is still refused")
            publisher.check(client)
            trial.tried += 1
