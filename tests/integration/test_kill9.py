"""kill -9 of a writer under load: what it acknowledged is there, once and in order."""

import os
import signal
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.doomed_writer import doomed_writer, number_in, value_of

from quivermq.log import DataDirectory, Log, verify
from quivermq.settings import Durability, StorageSettings

CYCLES = int(os.environ.get("QUIVER_TEST_CRASH_CYCLES", "5"))
ACKNOWLEDGEMENTS_MAX = 150
SMALL: dict[str, Any] = {"segment_bytes": 16_384, "index_interval_bytes": 512}


def live_and_die(path: Path, life: int, durability: Durability, acknowledgements: int) -> dict[int, bytes]:
    """Kill a writer after so many acknowledgements, and return all the messages it was promised."""
    promised: dict[int, bytes] = {}

    def note(line: str) -> None:
        offset, number, count = map(int, line.split()[1:])
        promised.update({offset + each: value_of(life, number + each) for each in range(count)})

    with doomed_writer(path, life, durability=durability, **SMALL) as (pid, told):
        assert told.readline().startswith("open ")
        for _ in range(acknowledgements):
            note(told.readline())
        os.kill(pid, signal.SIGKILL)
        # What it had written into the pipe outlives it.
        for line in told:
            note(line)
    return promised


def check(log: Log, promised: dict[int, bytes]) -> None:
    """Every promise is kept; what was not promised is there in order, as far as it is there."""
    records = list(log.records())
    assert [record.offset for record in records] == list(range(log.end))
    found = {record.offset: record.value for record in records}
    assert {offset: found.get(offset) for offset in promised} == promised
    names = [number_in(record.value) for record in records]
    for _, group in groupby(names, key=lambda name: name[0]):
        numbers = [number for _, number in group]
        assert numbers == list(range(len(numbers))), "a message is missing, twice there or out of order"
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("durability", ["fsync", "os", "buffered"])
def test_what_was_acknowledged_is_there(
    tmp_path: Path, durability: Durability, request: pytest.FixtureRequest
) -> None:
    seed = f"{request.config.option.hypothesis_seed}/{durability}"
    print(f"seed: {seed}")
    rng = Random(seed)
    settings = StorageSettings(durability=durability, **SMALL)
    promised: dict[int, bytes] = {}
    for life in range(CYCLES):
        promised |= live_and_die(tmp_path, life, durability, rng.randint(0, ACKNOWLEDGEMENTS_MAX))
        # As the dead process left it, and as the next one does.
        assert verify(tmp_path).is_sound
        with DataDirectory(tmp_path, settings) as directory:
            check(directory.log("log"), promised)
        assert verify(tmp_path).findings == []
    assert promised, "nobody was ever promised anything"
    assert not (tmp_path / "log" / "@quarantine").exists(), "a kill must not cost whole frames"
