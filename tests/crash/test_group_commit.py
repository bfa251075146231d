"""Many threads share their syncs, and the process dies in the middle: whoever was told has its message."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.crash import DATA, LOG, SMALL, Model, seeds, told
from support.faulty_disk import FaultyDisk, PowerCut

from quivermq.errors import DiskFull, FsyncFailed, QuiverError
from quivermq.log import DataDirectory, verify

pytestmark = pytest.mark.fault("power", "engine")

THREADS = 8
MESSAGES = 6


class Crowd:
    """Threads that append at `fsync` to one log, each after its last message was acknowledged."""

    def __init__(self, disk: FaultyDisk, seed: int) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.errors: list[QuiverError] = []
        self._disk = disk
        self._rng = Random(f"crowd {seed}")
        self._data = DataDirectory(DATA, SMALL, disk=disk)
        self.log = self._data.log(LOG.name)

    def run(self) -> None:
        """Returns once every thread is done, or dead."""
        plans = [[self._rng.randrange(400) for _ in range(MESSAGES)] for _ in range(THREADS)]
        threads = [
            threading.Thread(target=self._append, args=(number, plan)) for number, plan in enumerate(plans)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._data._scheduler.close()

    def _append(self, thread: int, plan: list[int]) -> None:
        for number, size in enumerate(plan):
            value = b"%d/%d/" % (thread, number) + bytes(size)
            try:
                self.acknowledged[self.log.append(value, key=b"%d" % thread)] = value
            except QuiverError as error:
                self.errors.append(error)
                return


def crowds(seed: int) -> Iterator[tuple[FaultyDisk, Crowd]]:
    """A crowd on a disk that dies, once for every step; the last ones come to their end."""
    step = 0
    while True:
        step += 1
        disk = FaultyDisk(seed)
        disk.make_directory(LOG)
        disk.stop_at(disk.steps + step)
        try:
            crowd = Crowd(disk, seed)
        except PowerCut:
            continue
        crowd.run()
        yield disk, crowd
        if not disk.dead:
            return


def check(disk: FaultyDisk, crowd: Crowd) -> None:
    with told(disk):
        log = DataDirectory(DATA, SMALL, disk=disk).log(LOG.name)
        records = list(log.records())
        assert [record.offset for record in records] == list(range(log.end))
        for offset, value in crowd.acknowledged.items():
            assert records[offset].value == value
        places = [tuple(map(int, record.value.split(b"/")[:2])) for record in records]
        assert len(places) == len(set(places)), "a message is there twice"
        for thread in range(THREADS):
            numbers = [number for place, number in places if place == thread]
            assert numbers == list(range(len(numbers))), "the messages of a thread are out of order"
        assert verify(DATA, SMALL, disk=disk).is_sound


@pytest.mark.parametrize("model", ["kill", "power"])
def test_whoever_was_told_has_its_message_after_a_crash(model: Model) -> None:
    for seed in seeds(1):
        for disk, crowd in crowds(seed):
            left = disk.after_kill() if model == "kill" else disk.after_power_loss(seed + disk.steps)
            check(left, crowd)


@pytest.mark.parametrize("count", range(1, MESSAGES + 1))
def test_a_failed_sync_is_told_to_everybody_who_waits_for_it(count: int) -> None:
    for seed in seeds(2):
        disk = FaultyDisk(seed)
        crowd = Crowd(disk, seed)
        fail_sync_of_log(disk, count)
        crowd.run()
        # Nobody was done before: every sync brings a thread at most one message further.
        assert len(crowd.errors) == THREADS
        assert {type(error) for error in crowd.errors} == {FsyncFailed}
        check(disk.after_kill(), crowd)
        check(disk.after_power_loss(seed), crowd)


def fail_sync_of_log(disk: FaultyDisk, count: int) -> None:
    """Let the sync of a log fail when it is the one of that number from now on."""
    seen: list[Path] = []

    def watch(operation: str, path: Path) -> None:
        if operation == "sync" and path.suffix == ".log":
            seen.append(path)
            if len(seen) == count:
                disk.fail_sync("*.log")

    disk.before_step = watch


def test_a_group_that_was_refused_stays_away_though_a_part_of_it_was_written() -> None:
    disk = FaultyDisk()
    # Every message becomes a frame, and all of a group are written in one go.
    log = DataDirectory(DATA, replace(SMALL, batch_bytes=600), disk=disk).log(LOG.name)
    log.append(b"first")
    refused: list[DiskFull] = []

    def append() -> None:
        try:
            log.append(bytes(600))
        except DiskFull as error:
            refused.append(error)

    threads = [threading.Thread(target=append) for _ in range(3)]

    def gather(operation: str, path: Path) -> None:
        """While the leader syncs, let the others come, and fill the disk in the middle of them."""
        disk.before_step = None
        for thread in threads:
            thread.start()
        while len(log._writer._commit._open.entries) < len(threads):
            threading.Event().wait(0.001)
        disk.fill_after(1000)

    disk.before_step = lambda operation, path: gather(operation, path) if operation == "sync" else None
    log.append(b"second")
    for thread in threads:
        thread.join()
    assert len(refused) == len(threads)
    for seed in seeds(50):
        left = disk.after_power_loss(seed)
        values = [record.value for record in DataDirectory(DATA, SMALL, disk=left).log(LOG.name).records()]
        assert values == [b"first", b"second"], left.description
    disk.fill_after(None)
    assert log.append(b"third") == 2
    log.close()
