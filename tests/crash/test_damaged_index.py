"""A bit flipped anywhere in an index leads nobody astray: neither by offset nor by time."""

from pathlib import Path

import pytest
from support.fault_count import count_faults
from support.faulty_disk import FaultyDisk

from quivermq.log import DataDirectory, Log
from quivermq.settings import StorageSettings

pytestmark = pytest.mark.fault("damage", "engine")

DATA = Path("/data")
# An entry for every message, so that each byte of the index decides about something.
SETTINGS = StorageSettings(segment_messages=4, index_interval_bytes=64)
MESSAGES = 10
START_US = 1_800_000_000_000_000


def looked_up(log: Log) -> list[tuple[int, int]]:
    """What is found of every message by its offset, and by its time."""
    return [
        (next(log.records(offset)).timestamp, log.find_time(START_US + offset))
        for offset in range(MESSAGES)
    ]


def test_everything_is_found_as_before() -> None:
    disk = FaultyDisk()
    with DataDirectory(DATA, SETTINGS, disk=disk) as directory:
        for number in range(MESSAGES):
            directory.log("log").append(b"%d" % number, timestamp=START_US + number)
        before = looked_up(directory.log("log"))
    assert before == [(START_US + offset, offset) for offset in range(MESSAGES)]
    for path, data in disk.files().items():
        for position in range(len(data)) if path.suffix == ".idx" else ():
            struck = disk.after_kill()
            struck.flip(path, position, 1 << position % 8)
            with DataDirectory(DATA, SETTINGS, disk=struck) as directory:
                assert looked_up(directory.log("log")) == before, f"{path.name}: byte {position}"
            count_faults()
