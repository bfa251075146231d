"""The archiver dies at every step: a reader sees the state before or after, and the next run ends it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archives import (
    ARCHIVE,
    CREATED_US,
    LANE,
    TOPIC,
    archive_log,
    archived_values,
    merge,
)
from support.crash import Model, seeds
from support.faulty_disk import FaultyDisk, every_crash
from support.logs import Logs
from support.queues import Judged

from quivermq.archive import Archive, load_pointer, store_pointer
from quivermq.archive.manifest import MESSAGES, staging_path
from quivermq.errors import StorageFailed
from quivermq.log import LogFollower
from quivermq.settings import StorageSettings

pytestmark = pytest.mark.fault("interrupted", "engine")

DATA = Path("/data")
VALUES = [b"%d" % number for number in range(40)]

both_models = pytest.mark.parametrize("model", ["kill", "power"])


def log_of(disk: FaultyDisk) -> LogFollower:
    return LogFollower(DATA / "log", StorageSettings(), disk=disk)


def disk_with_log() -> FaultyDisk:
    """A log of two days, all of it durable."""
    disk = FaultyDisk()
    logs = Logs(DATA, disk)
    log = logs.open()
    for number in range(0, 40, 5):
        log.append_many(VALUES[number : number + 5], durability="fsync")
        logs.clock.advance(3 * 3600)
    logs.close()
    return disk.after_kill()


def plain_values(disk: FaultyDisk) -> list[bytes]:
    """What somebody counts who takes every file below the directory of the messages."""
    found: list[bytes] = []
    for data in plain_files(disk).values():
        found += pq.read_table(pa.BufferReader(data))["value"].to_pylist()
    return found


def plain_files(disk: FaultyDisk) -> dict[Path, bytes]:
    return {path: data for path, data in disk.files().items() if path.is_relative_to(ARCHIVE / MESSAGES)}


def named_files(disk: FaultyDisk) -> set[Path]:
    """The files that the manifest names, of which those that others stand in for may not be gone yet."""
    manifest = Archive(ARCHIVE, disk).manifest(TOPIC)
    if manifest is None:
        return set()
    files = {file.name for lane in manifest.lanes.values() for file in lane.files}
    return {ARCHIVE / name for name in files | set(manifest.dropped)}


def judge(disk: FaultyDisk, before: int, after: int) -> None:
    """Old or new, nothing twice; and whoever comes next makes it new, and leaves nothing behind."""
    seen = archived_values(disk)
    assert seen in (VALUES[:before], VALUES[:after]), disk.description
    assert set(plain_files(disk)) <= named_files(disk), disk.description
    plain = plain_values(disk)
    assert len(plain) == len(set(plain)), disk.description
    assert set(plain) <= set(seen), disk.description
    archive_log(disk, log_of(disk), after, piece_messages=15)
    assert archived_values(disk) == VALUES[:after], disk.description
    assert sorted(plain_values(disk)) == sorted(VALUES[:after]), disk.description
    assert set(plain_files(disk)) == named_files(disk), disk.description
    assert not disk.names(staging_path(ARCHIVE)), disk.description
    manifest = Archive(ARCHIVE, disk).manifest(TOPIC)
    assert manifest is not None
    assert manifest.is_settled


@both_models
def test_the_first_run(model: Model) -> None:
    def run(disk: FaultyDisk, _: list[None]) -> None:
        archive_log(disk, log_of(disk), piece_messages=15)

    judged = Judged()
    for disk, _ in every_crash(run, model=model, seeds=seeds(2), start=disk_with_log()):
        if judged.is_new(disk):
            judge(disk, 0, 40)
    assert len(judged) > 20


@both_models
def test_a_further_run(model: Model) -> None:
    start = disk_with_log()
    archive_log(start, log_of(start), 13)

    def run(disk: FaultyDisk, _: list[None]) -> None:
        archive_log(disk, log_of(disk), piece_messages=11)

    judged = Judged()
    for disk, _ in every_crash(run, model=model, seeds=seeds(2), start=start):
        if judged.is_new(disk):
            judge(disk, 13, 40)
    assert len(judged) > 20


@both_models
def test_a_merger(model: Model) -> None:
    start = disk_with_log()
    archive_log(start, log_of(start), piece_messages=8)

    def run(disk: FaultyDisk, done: list[bool]) -> None:
        merge(disk)
        done.append(True)

    judged = Judged()
    for disk, done in every_crash(run, model=model, seeds=seeds(2), start=start):
        if not judged.is_new(disk, bool(done)):
            continue
        judge(disk, 40, 40)
        if done:
            found = Archive(ARCHIVE, disk).topic(TOPIC, CREATED_US)
            assert found is not None
            assert len(found.lane(LANE).files) == 2, disk.description
    assert len(judged) > 20


@both_models
def test_a_crash_while_a_crash_is_mended(model: Model) -> None:
    start = disk_with_log()
    archive_log(start, log_of(start), 13, piece_messages=7)

    def run(disk: FaultyDisk, _: list[None]) -> None:
        archive_log(disk, log_of(disk), piece_messages=20)
        merge(disk)

    def mend(disk: FaultyDisk, _: list[None]) -> None:
        archive_log(disk, log_of(disk))

    first, judged = Judged(), Judged()
    for number, (crashed, _) in enumerate(every_crash(run, model=model, seeds=[0], start=start)):
        if number % 9 == 0 and first.is_new(crashed):
            for disk, _ in every_crash(mend, model=model, seeds=[number], start=crashed):
                if judged.is_new(disk):
                    judge(disk, 13, 40)
    assert len(judged) > 20


def killed_when_committed() -> FaultyDisk:
    """A merger was killed right after its commit: its manifest is there, and no power loss knows of it."""
    start = disk_with_log()
    archive_log(start, log_of(start), piece_messages=8)

    def run(disk: FaultyDisk, _: list[None]) -> None:
        merge(disk)

    # With three seeds, one of them dies right after the step that puts the manifest in place.
    for disk, _ in every_crash(run, model="kill", seeds=range(3), start=start):
        manifest = Archive(ARCHIVE, disk).manifest(TOPIC)
        if manifest is not None and not manifest.is_settled:
            return disk
    raise AssertionError("no step was the commit")


def test_power_is_lost_while_a_merger_that_was_killed_is_finished() -> None:
    def mend(disk: FaultyDisk, _: list[None]) -> None:
        archive_log(disk, log_of(disk))

    judged = Judged()
    for disk, _ in every_crash(mend, model="power", seeds=seeds(6), start=killed_when_committed()):
        if judged.is_new(disk):
            judge(disk, 40, 40)
    assert len(judged) > 5


def test_a_staged_file_that_is_gone_is_told() -> None:
    disk = killed_when_committed()
    manifest = Archive(ARCHIVE, disk).manifest(TOPIC)
    assert manifest is not None
    disk.remove(ARCHIVE / str(manifest.staged[0].staged))
    with pytest.raises(StorageFailed, match=r"messages/topic=orders/.*\.parquet is missing"):
        archive_log(disk, log_of(disk))


@both_models
def test_the_pointer(model: Model) -> None:
    def run(disk: FaultyDisk, told: list[Path]) -> None:
        disk.make_directory(DATA)
        store_pointer(disk, DATA, ARCHIVE)
        told.append(ARCHIVE)
        store_pointer(disk, DATA, DATA / "archive")
        told.append(DATA / "archive")

    for disk, told in every_crash(run, model=model, seeds=seeds(3)):
        now = load_pointer(disk, DATA)
        if not told:
            assert now in (None, ARCHIVE), disk.description
        else:
            assert now in (told[-1], DATA / "archive"), disk.description
