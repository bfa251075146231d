"""kill -9, hundreds of times in one directory: of a process that has a queue open, and of a broker.

`--chaos-cycles` says how many times. Most of it happens on a disk in memory, where a run is short because
no sync takes time: what a kill leaves does not depend on that. The rest is killed in the middle of syncs.
"""

import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pytest
import support
from support.crash import victim
from support.doomed_writer import number_in, value_of
from support.fault_count import count_faults
from support.fault_record import MakeTrial

from quivermq.chaos.cases import kills
from quivermq.chaos.processes import ProcessPool, process_pool
from quivermq.log import DataDirectory, Log, ReadableLog, follow, verify
from quivermq.model.messages import Record
from quivermq.settings import Durability, StorageSettings

LOG_CYCLES = 40
LINES_MAX = 400
SMALL: dict[str, Any] = {"segment_bytes": 16_384, "index_interval_bytes": 512}

loads = pytest.mark.parametrize(
    ("durability", "ordering", "in_memory"),
    [("fsync", "none", False), ("fsync", "key", True), ("os", "none", True)],
)


@pytest.mark.timeout(36_000)
@pytest.mark.fault("kill", "engine")
@loads
def test_a_queue(make_trial: MakeTrial, durability: str, ordering: str, in_memory: bool) -> None:
    trial = make_trial(150 if in_memory else 40, in_memory=in_memory)
    kills.kill_engine(trial, durability, ordering)


@pytest.mark.timeout(36_000)
@pytest.mark.fault("kill", "broker")
@loads
def test_a_broker(make_trial: MakeTrial, durability: str, ordering: str, in_memory: bool) -> None:
    trial = make_trial(60 if in_memory else 20, in_memory=in_memory)
    kills.kill_broker(trial, durability, ordering)


# A log below it all, with many threads, retention, and every durability.


@pytest.fixture(autouse=True)
def processes_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.pathsep.join([str(Path(*support.__path__).parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)


def cycles_of(request: pytest.FixtureRequest) -> int:
    wanted: int | None = request.config.getoption("--chaos-cycles")
    return wanted or LOG_CYCLES


def run_and_kill(pool: ProcessPool, lines: int, **order: object) -> list[list[str]]:
    """Let a process report so many lines, kill it, and return all that it reported."""
    pool.start(**order)
    reported = [pool.read() for _ in range(lines)]
    reported += pool.kill()
    return [[word, *map(str, rest)] for word, rest in reported]


class Reported:
    """What the processes have reported so far."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.floor = 0

    def note(self, lines: Iterable[list[str]]) -> None:
        for line in lines:
            match line:
                case ["done", offset, name]:
                    assert self.names.setdefault(int(offset), name) == name, "an offset was given twice"
                case ["floor", offset]:
                    self.floor = max(self.floor, int(offset))

    def check(self, log: ReadableLog) -> None:
        """Every acknowledged message is there, once, whole, and nothing that was never appended."""
        assert log.start <= self.floor
        records = list(log.records())
        assert [record.offset for record in records] == list(range(log.start, log.end))
        assert log.end > max(self.names, default=-1)
        found = {record.offset: name_in(record) for record in records}
        assert len(set(found.values())) == len(found), "a message is there twice"
        for offset, name in self.names.items():
            assert offset < log.start or found[offset] == name


def name_in(record: Record) -> str:
    name = record.value.partition(b":")[0].decode()
    assert (record.value, record.key) == (victim.value_of(name), name.encode())
    return name


@pytest.mark.fault("kill", "engine")
def test_a_log_with_many_threads_and_retention(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    rng, reported = Random(str(request.config.option.hypothesis_seed)), Reported()
    with process_pool("support.crash.victim") as pool:
        for run in range(cycles_of(request)):
            lines = rng.choice((0, rng.randint(1, LINES_MAX)))
            reported.note(run_and_kill(pool, lines, path=str(tmp_path), run=str(run)))
            count_faults()
            if rng.random() < 0.5:
                # From outside, without recovery: the next process finds what this one left.
                reported.check(follow(tmp_path, "log", victim.SETTINGS))
            else:
                with DataDirectory(tmp_path, victim.SETTINGS) as data:
                    reported.check(data.log("log"))
            assert verify(tmp_path, victim.SETTINGS).is_sound
    with DataDirectory(tmp_path, victim.SETTINGS) as data:
        reported.check(data.log("log"))
        assert data.log("log").start > 0, "retention never removed anything: give them longer runs"
    assert not (tmp_path / "log" / "@quarantine").exists()


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


@pytest.mark.fault("kill", "engine")
@pytest.mark.parametrize("durability", ["fsync", "os", "buffered"])
def test_a_log_of_each_durability(
    tmp_path: Path, durability: Durability, request: pytest.FixtureRequest
) -> None:
    rng = Random(f"{request.config.option.hypothesis_seed}/{durability}")
    settings = StorageSettings(durability=durability, **SMALL)
    promised: dict[int, bytes] = {}
    with process_pool("support.doomed_writer") as pool:
        for run in range(cycles_of(request) // 4):
            order = {"path": str(tmp_path), "run": run, "settings": {"durability": durability, **SMALL}}
            for word, *rest in run_and_kill(pool, rng.randint(1, 150), **order):
                if word == "done":
                    offset, number, count = map(int, rest)
                    for each in range(count):
                        promised[offset + each] = value_of(run, number + each)
            count_faults()
            # As the dead process left it, and as the next one does.
            assert verify(tmp_path).is_sound
            with DataDirectory(tmp_path, settings) as directory:
                check(directory.log("log"), promised)
            assert verify(tmp_path).findings == []
    assert promised, "nobody was ever promised anything"
    assert not (tmp_path / "log" / "@quarantine").exists(), "a kill must not cost whole frames"
