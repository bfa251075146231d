"""Indexes that somebody took away are there again once the log was opened, to the last byte."""

from pathlib import Path

import pytest
from support.fault_count import count_faults
from support.faulty_disk import FaultyDisk

from quivermq.log import DataDirectory
from quivermq.settings import StorageSettings

pytestmark = pytest.mark.fault("deleted", "engine")

DATA = Path("/data")
# Several segments, and several entries in the index of each.
SETTINGS = StorageSettings(segment_messages=4, index_interval_bytes=64)
VALUES = [b"%d" % number for number in range(14)]


def indexes(disk: FaultyDisk) -> dict[Path, bytes]:
    return {path: data for path, data in disk.files().items() if path.suffix == ".idx"}


def test_each_of_them_and_all_at_once() -> None:
    disk = FaultyDisk()
    with DataDirectory(DATA, SETTINGS, disk=disk) as directory:
        for value in VALUES:
            directory.log("log").append(value)
    before = indexes(disk)
    assert len(before) == 4
    for gone in (*([path] for path in before), list(before)):
        struck = disk.after_kill()
        for path in gone:
            struck.remove(path)
        with DataDirectory(DATA, SETTINGS, disk=struck) as directory:
            assert [record.value for record in directory.log("log").records()] == VALUES
        assert indexes(struck) == before, f"without {gone}"
        count_faults()
