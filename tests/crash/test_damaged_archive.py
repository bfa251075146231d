"""A bit flipped or a file cut in an archive: it is told, or what is read is the same."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.archives import ARCHIVE, archive_log, archived_values
from support.crash.blows import blows
from support.faulty_disk import FaultyDisk
from support.logs import Logs

from quivermq.archive import load_pointer, store_pointer
from quivermq.errors import StorageFailed
from quivermq.log import LogFollower
from quivermq.settings import StorageSettings

DATA = Path("/data")
VALUES = [b"%d" % number * 50 for number in range(60)]

pytestmark = pytest.mark.fault("damage", "engine")


def check(disk: FaultyDisk, path: Path, look: Callable[[FaultyDisk], object], places: int) -> int:
    """It is told, or nothing has changed. Returns how often it was told."""
    before, told = look(disk), 0
    for struck, blow in blows(disk, path, places):
        found = look(struck)
        if isinstance(found, StorageFailed):
            assert path.name in str(found), f"{blow}: {found}"
            told += 1
        else:
            assert found == before, blow
    return told


def values_of(disk: FaultyDisk) -> object:
    try:
        return archived_values(disk)
    except StorageFailed as error:
        return error


def pointer_of(disk: FaultyDisk) -> object:
    try:
        return load_pointer(disk, DATA)
    except StorageFailed as error:
        return error


@pytest.fixture
def archived() -> FaultyDisk:
    disk = FaultyDisk()
    logs = Logs(DATA, disk)
    log = logs.open()
    log.append_many(VALUES, durability="fsync")
    logs.close()
    disk = disk.after_kill()
    follower = LogFollower(DATA / "log", StorageSettings(), disk=disk)
    archive_log(disk, follower, piece_messages=30)
    store_pointer(disk, DATA, ARCHIVE)
    return disk


def test_archived_messages(archived: FaultyDisk) -> None:
    for path in [path for path in archived.files() if path.suffix == ".parquet"]:
        assert check(archived, path, values_of, 60) > 40


def test_a_manifest(archived: FaultyDisk) -> None:
    [path] = [path for path in archived.files() if path.match(f"{ARCHIVE}/_quiver/*.json")]
    assert check(archived, path, values_of, 400) > 200


def test_the_name_of_the_archive(archived: FaultyDisk) -> None:
    assert check(archived, DATA / "archive.json", pointer_of, 100) > 40
