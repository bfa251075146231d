"""The delay store dies at every step: what was acknowledged waits or is in its lane, and only once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

import pytest
from support.crash import DATA, Model, every, seeds, told
from support.faulty_disk import FaultyDisk, PowerCut, every_crash
from support.logs import assert_sound
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.queues import Judged

from quivermq.errors import FsyncFailed
from quivermq.log import DataDirectory, Log, verify
from quivermq.model.lanes import HIGH, NORMAL, PRIORITIES
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.delay import Delayed, DelayStore

pytestmark = pytest.mark.fault("power", "engine")

NOW = 1_700_000_000_000_000
HOUR, DAY = 3_600_000_000, 86_400_000_000
LANES = [(0, HIGH), (0, NORMAL), (1, NORMAL)]
NAME = "topics/t/delayed"
FSYNC = StorageSettings(segment_messages=4, batch_messages=3)
OS = replace(FSYNC, durability="os")


@dataclass
class Promises:
    """What the store was given, and what it said."""

    put: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    cancelling: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    delivering: list[int] = field(default_factory=list)
    released_to: int = NOW
    # What must not be relied on after a power loss: it was put with durability `os`.
    unsafe: list[int] = field(default_factory=list)
    ids: dict[int, str] = field(default_factory=dict)


class Process:
    """One that uses a delay store, until it dies."""

    def __init__(self, disk: FaultyDisk, promises: Promises, settings: StorageSettings) -> None:
        self.promises, self.settings = promises, settings
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.directory = DataDirectory(
            DATA, settings, disk=disk, clock=self.clock, scheduler=self.scheduler
        )
        self.store = DelayStore(self.directory, NAME, settings, self.lane)
        self.ids = promises.ids

    def lane(self, partition: int, lane: int) -> Log:
        return self.directory.log(f"topics/t/p{partition}/{PRIORITIES[lane]}", self.settings)

    def put(self, *dues: int, durability: Durability | None = None) -> None:
        """Put messages; each has a number, which says where it belongs, too."""
        promises, messages = self.promises, []
        for number, due in enumerate(dues, len(promises.put)):
            partition, lane = LANES[number % 3]
            value = b"%d %d" % (number, due)
            messages.append(Delayed(due, partition, lane, value, None, None, NOW, None, None))
        given = range(len(promises.put), len(promises.put) + len(dues))
        promises.put += dues
        if (durability or self.settings.durability) != "fsync":
            promises.unsafe += given
        for number, id_ in zip(given, self.store.put(messages, durability), strict=True):
            assert id_ is not None
            self.ids[number] = id_
        promises.acknowledged += given

    def cancel(self, number: int) -> None:
        self.promises.cancelling.append(number)
        assert self.store.cancel(self.ids[number])
        self.promises.cancelled.append(number)

    def deliver(self, number: int) -> None:
        self.promises.delivering.append(number)
        assert self.store.deliver(self.ids[number]) is not None
        assert self.store.deliver(self.ids[number]) is None

    def clear(self) -> None:
        waiting = [number for number, _ in self.waiting()]
        self.promises.cancelling += waiting
        assert self.store.clear() == len(waiting)
        self.promises.cancelled += waiting

    def release(self, now: int) -> None:
        self.promises.released_to = max(now, self.promises.released_to)
        self.store.release(now)

    def pass_time(self) -> None:
        """Let everything be synced that is synced from time to time."""
        self.clock.advance(self.settings.fsync_interval_ms / 1000)
        self.scheduler.run_due()

    def close(self) -> None:
        self.store.close()
        self.directory.close()

    def in_lanes(self) -> Iterator[tuple[int, int]]:
        for lane in LANES:
            for record in self.lane(*lane).records():
                number, due = map(int, record.value.split())
                assert LANES[number % 3] == lane
                # What its sender was told it is called, also when it was moved by a recovery.
                assert record.scheduled_id == self.ids.get(number, record.scheduled_id) is not None
                yield number, due

    def waiting(self) -> list[tuple[int, int]]:
        found = self.store.scheduled()
        assert len(found) == self.store.pending
        for message in found:
            number, due = map(int, message.value.split())
            partition, lane = LANES[number % 3]
            where = (message.deliver_at, message.partition, message.priority)
            assert where == (due, partition, PRIORITIES[lane])
        return [(int(message.value.split()[0]), message.deliver_at) for message in found]


def work(process: Process) -> None:
    """Everything a store does, in few steps."""
    # Far enough apart for three buckets.
    process.put(NOW + 5, NOW + 2, NOW + 1, NOW + 4, NOW + 30 * HOUR, NOW + 3 * DAY)
    process.put(NOW + 2, NOW + 6)
    process.release(NOW + 2)
    process.cancel(3)
    process.put(NOW + 7)
    process.release(NOW + 6)
    process.pass_time()
    process.cancel(8)
    # The first bucket is done with, and goes.
    process.release(NOW + DAY)
    process.put(NOW + 30 * HOUR, NOW + 31 * HOUR)
    process.release(NOW + 40 * HOUR)


def mixed_work(process: Process) -> None:
    """Some messages are put to be safe, in a topic that otherwise is not."""
    process.put(NOW + 1, NOW + 3, NOW + 5, NOW + 30 * HOUR, durability="fsync")
    process.put(NOW + 2, NOW + 4)
    process.release(NOW + 1)
    process.release(NOW + 2)
    process.pass_time()
    process.release(NOW + 3)
    process.cancel(5)
    process.release(NOW + 5)
    process.put(NOW + 31 * HOUR, durability="fsync")
    process.release(NOW + DAY)
    process.release(NOW + 30 * HOUR)


def early_work(process: Process) -> None:
    """Some messages do not wait until they are due, and in the end none does."""
    process.put(NOW + 3, NOW + 1, NOW + 2, NOW + 30 * HOUR)
    process.deliver(0)
    process.release(NOW + 2)
    process.deliver(3)
    process.put(NOW + 5, NOW + 3 * DAY, NOW + 4)
    process.pass_time()
    process.deliver(5)
    process.release(NOW + 4)
    process.clear()
    process.put(NOW + 4 * DAY)


SCENARIOS = {
    "fsync": (work, FSYNC),
    "os": (work, OS),
    "mixed": (mixed_work, OS),
    "early": (early_work, FSYNC),
    "early, os": (early_work, OS),
}
every_scenario = pytest.mark.parametrize("name", SCENARIOS)
both_models = pytest.mark.parametrize("model", ["kill", "power"])
all_models = pytest.mark.parametrize("model", ["kill", "power", "store"])


def crashes(name: str, model: Model, count: int) -> Iterator[tuple[FaultyDisk, Promises]]:
    scenario, settings = SCENARIOS[name]

    def run(disk: FaultyDisk, acknowledged: list[Promises]) -> None:
        acknowledged.append(Promises())
        process = Process(disk, acknowledged[0], settings)
        scenario(process)
        process.close()

    for disk, [promises] in every_crash(run, model=model, seeds=seeds(count)):
        yield disk, promises


def judge(disk: FaultyDisk, promises: Promises, name: str, model: Model) -> None:
    """Open what is left, release all of it, and check that everything is there, and nothing twice."""
    promises, is_safe = deepcopy(promises), model == "kill" or SCENARIOS[name][1] is FSYNC
    process = Process(disk, promises, SCENARIOS[name][1])
    here = list(process.in_lanes())
    waiting = process.waiting()
    assert waiting == sorted(waiting, key=lambda found: (found[1], found[0])), "not in order"
    for number, due in [*here, *waiting]:
        assert promises.put[number] == due
    in_time = [(number, due) for number, due in here if number not in promises.delivering]
    assert all(due <= promises.released_to for _, due in in_time), "too early"
    if is_safe:
        judge_once(promises, here, waiting)
    judge_nothing_lost(promises, {number for number, _ in [*here, *waiting]}, is_safe)
    process.store.release(NOW + 100 * DAY)
    assert (process.store.pending, process.store.scheduled()) == (0, [])
    after = Counter(number for number, _ in process.in_lanes())
    assert after == Counter(number for number, _ in [*here, *waiting])
    # The store goes on as if nothing had happened.
    process.put(NOW + 101 * DAY, durability="fsync")
    process.close()
    reopened = Process(disk, promises, SCENARIOS[name][1])
    assert reopened.waiting() == [(len(promises.put) - 1, NOW + 101 * DAY)]
    assert Counter(number for number, _ in reopened.in_lanes()) == after
    reopened.close()
    assert_sound(verify(DATA, FSYNC, disk=disk))


def judge_once(promises: Promises, here: list[tuple[int, int]], waiting: list[tuple[int, int]]) -> None:
    found = Counter(number for number, _ in [*here, *waiting])
    assert set(found.values()) <= {1}, "twice"
    assert not found.keys() & set(promises.cancelled), "cancelled and there"
    for lane in LANES:
        # What had to wait for the recovery stands where it would have stood.
        order = [
            (due, number)
            for number, due in here
            if LANES[number % 3] == lane and number not in promises.delivering
        ]
        assert order == sorted(order)


def judge_nothing_lost(promises: Promises, found: set[int], is_safe: bool) -> None:
    expected = set(promises.acknowledged) - set(promises.cancelling)
    if not is_safe:
        expected -= set(promises.unsafe)
    assert expected <= found, "lost"


@all_models
@every_scenario
def test_a_crash_at_every_step(name: str, model: Model) -> None:
    judged = Judged()
    for disk, promises in crashes(name, model, 1 if model == "kill" else 3):
        if judged.is_new(disk, repr(promises)):
            with told(disk):
                judge(disk, promises, name, model)
    assert len(judged) > (10 if model == "store" else 30)


@both_models
@every_scenario
def test_a_crash_at_every_step_of_the_recovery_after_a_crash(name: str, model: Model) -> None:
    settings = SCENARIOS[name][1]

    def recover(disk: FaultyDisk, _: list[None]) -> None:
        process = Process(disk, Promises(), settings)
        process.store.release(NOW + 5)
        process.close()

    first, judged = Judged(), Judged()
    for crashed, promises in crashes(name, model, 1):
        if not first.is_new(crashed) or len(first) % every(20):
            continue
        given = replace(promises, released_to=max(NOW + 5, promises.released_to))
        for disk, _ in every_crash(recover, model=model, seeds=[len(first)], start=crashed):
            if judged.is_new(disk, repr(given)):
                disk.description += f"; in a recovery {crashed.description}"
                with told(disk):
                    judge(disk, given, name, model)
    assert len(judged) > 10


@pytest.mark.parametrize("path", ["*/delayed/journal/*", "*/delayed/0-*", "*/p0/*"])
def test_a_failed_sync_loses_nothing(path: str) -> None:
    """Wherever a sync fails, whoever opens the store next finds everything that was acknowledged."""
    rehearsal = FaultyDisk()
    work(Process(rehearsal, Promises(), FSYNC))
    steps = [s.number for s in rehearsal.history if s.operation == "sync" and fnmatch(str(s.path), path)]
    assert len(steps) > 3
    for step in steps:
        disk, promises = FaultyDisk(), Promises()
        disk.fail_sync(at=step)
        process = Process(disk, promises, FSYNC)
        # What was done before it failed may have to be told first.
        with suppress(FsyncFailed):
            work(process)
        for after in (disk.after_kill(), disk.after_power_loss(keep="nothing")):
            with told(after):
                judge(after, promises, "fsync", "kill")


def test_messages_that_a_lane_only_had_in_its_buffer_do_not_hide_what_was_released() -> None:
    """The lane is shorter after the kill than it was when the intent was written."""
    disk, promises = FaultyDisk(), Promises()
    process = Process(disk, promises, OS)
    process.put(NOW + 1)
    lane = process.lane(*LANES[0])
    for _ in range(2):
        lane.append(b"in the buffer", durability="buffered")

    def die(operation: str, path: Path) -> None:
        if operation == "append" and path.parent.name == "high":
            disk.stop()

    disk.before_step = die
    with pytest.raises(PowerCut):
        process.release(NOW + 1)
    for _ in range(3):
        disk = disk.after_kill()
        assert list(Process(disk, promises, OS).in_lanes()) == [(0, NOW + 1)]
