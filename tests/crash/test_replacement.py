"""A replacement dies at every step: the segment is the old one or the new one, and whole."""

from pathlib import Path

import pyarrow as pa
import pytest
from support.crash import Model, every, seeds
from support.faulty_disk import FaultyDisk, every_crash
from support.logs import Logs, values

from quivermq.frame import Frame, stamp_of
from quivermq.frame.rewriting import rewritten
from quivermq.log import Log

pytestmark = pytest.mark.fault("interrupted", "engine")

DATA = Path("/data")
ALL = [b"v%d" % i for i in range(30)]

both_models = pytest.mark.parametrize("model", ["kill", "power"])
all_models = pytest.mark.parametrize("model", ["kill", "power", "store"])


def prepared() -> FaultyDisk:
    disk = FaultyDisk()
    logs = Logs(DATA, disk)
    log = opened(logs)
    for start in range(0, 25, 5):
        log.append_many(ALL[start : start + 5], keys=[b"k"] * 5, durability="fsync")
    logs.close()
    return disk


def opened(logs: Logs) -> Log:
    return logs.open(segment_messages=10, index_interval_bytes=64)


def replace(log: Log, base: int, *kept: int) -> None:
    def keep(_: Frame, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([offset in kept for offset in batch.column("offset").to_pylist()])

    old = [frame for frame in log.frames(base) if frame.header.base_offset < base + 10]
    new = b"".join(map(bytes, rewritten(old, keep)))
    log.replace(base, new, expected=stamp_of(frame.header for frame in old))


def run(disk: FaultyDisk, acknowledged: list[int]) -> None:
    log = opened(Logs(DATA, disk))
    acknowledged.append(0)
    replace(log, 0, 3, 9)
    acknowledged.append(1)
    # Not synced by whoever appends: what supersedes has to be durable before anything goes.
    log.append_many(ALL[25:], durability="os")
    acknowledged.append(2)
    replace(log, 10, 19)
    acknowledged.append(3)
    log.close()


def states() -> list[list[bytes]]:
    first = [ALL[3], ALL[9], *ALL[10:25]]
    return [ALL[:25], first, first + ALL[25:], [ALL[3], ALL[9], *ALL[19:]]]


def judge(disk: FaultyDisk, acknowledged: list[int], model: Model) -> None:
    logs = Logs(DATA, disk)
    log = opened(logs)
    found = values(log)
    reached = max(acknowledged, default=0)
    # What was not synced may be there or not, in part too, as long as nothing relies on it.
    is_known = found in states() or (found == states()[1] + ALL[25 : 25 + len(found) - len(states()[1])])
    assert is_known, (disk.description, found)
    durable = reached if model == "kill" or reached != 2 else 1
    assert found in states()[durable:] or model != "kill", (disk.description, found, reached)
    if reached in (1, 3):
        assert found != states()[reached - 1], (disk.description, found)
    assert log.end >= 25
    # The second replacement took away what only the messages behind offset 25 make superfluous.
    assert log.end >= 30 or found[2:3] != [ALL[19]], disk.description
    log.append(b"more", durability="fsync")
    assert values(log) == [*found, b"more"]
    log.close()
    # The old index goes before the new one comes; in between there is none, and that is no loss.
    faults = {(finding.kind, finding.reason) for finding in logs.verify().findings}
    assert faults <= {("index", "the index is missing or unreadable")}, (disk.description, faults)
    assert not [name for name in disk.names(DATA / "log") if name.endswith(".tmp")], disk.description


@all_models
def test_a_crash_at_every_step(model: Model) -> None:
    for disk, acknowledged in every_crash(run, model=model, seeds=seeds(3), start=prepared()):
        judge(disk, acknowledged, model)


@both_models
def test_a_crash_at_every_step_of_the_opening_after_a_crash(model: Model) -> None:
    def reopen(disk: FaultyDisk, acknowledged: list[int]) -> None:
        opened(Logs(DATA, disk)).close()

    for number, (disk, acknowledged) in enumerate(
        every_crash(run, model=model, seeds=seeds(1), start=prepared())
    ):
        if number % every(4) == 0:
            for again, _ in every_crash(reopen, model=model, seeds=seeds(1), start=disk):
                judge(again, acknowledged, model)
