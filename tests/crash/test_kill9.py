"""A real process on a real disk, killed in the middle of its work, again and again in one directory."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

import support
from support.crash import victim

from quivermq.frame import Record
from quivermq.log import DataDirectory, LogReader, follow, verify

CYCLES = int(os.environ.get("QUIVER_TEST_CRASH_CYCLES", "30"))
LIFE_S_MAX = 0.2


class Told:
    """What the processes have told so far."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.floor = 0

    def note(self, lines: Iterable[str]) -> None:
        for line in lines:
            match line.split():
                case ["done", offset, name]:
                    assert self.names.setdefault(int(offset), name) == name, "an offset was given twice"
                case ["floor", offset]:
                    self.floor = max(self.floor, int(offset))

    def check(self, log: LogReader) -> None:
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


def live_and_die(directory: Path, life: int, rng: Random) -> list[str]:
    """Let a process work for a moment, kill it, and return what it told."""
    path = os.pathsep.join([str(Path(*support.__path__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "support.crash.victim", str(directory), str(life)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        told = os.read(pipe, 65536)
        deadline = time.monotonic() + rng.uniform(0, LIFE_S_MAX)
        while (left_s := deadline - time.monotonic()) > 0:
            if select.select([pipe], [], [], left_s)[0]:
                told += os.read(pipe, 65536)
        assert process.poll() is None, "it died of something else"
        process.kill()
        # What it had written into the pipe outlives it.
        told += process.stdout.read()
    return told.decode().splitlines()


def test_a_process_that_is_killed_again_and_again_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    rng = Random(seed := int.from_bytes(os.urandom(4)))
    print(f"seed: {seed}")
    told = Told()
    for life in range(CYCLES):
        told.note(live_and_die(tmp_path, life, rng))
        if rng.random() < 0.5:
            # From outside, without recovery: the next process finds what this one left.
            told.check(follow(tmp_path, "log", victim.SETTINGS))
        else:
            with DataDirectory(tmp_path, victim.SETTINGS) as data:
                told.check(data.log("log"))
        assert verify(tmp_path, victim.SETTINGS).is_sound
    with DataDirectory(tmp_path, victim.SETTINGS) as data:
        told.check(data.log("log"))
        assert data.log("log").start > 0, (
            "retention never removed anything: give the processes longer lives"
        )
    assert not (tmp_path / "log" / "@quarantine").exists()
