"""What is restored is as if the process had been killed at that moment; who dies leaves backups whole."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from copy import deepcopy

import pytest
from support.backups import SMALL_PARTS, BackedUp, backed_up
from support.crash import DATA, SCENARIOS, Ledger, Scenario, Witness, judge
from support.fault_count import count_faults
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.pictures import SteppingFiles, stepping

from quivermq.backup import BackupSet, check_backups, restore_from
from quivermq.backup.copying import PictureCopy
from quivermq.backup.sets import BackupManifest
from quivermq.chaos.cases.simulated_disk import Simulation
from quivermq.chaos.history import LoadHistory
from quivermq.engine import open_engine
from quivermq.errors import Conflict, QuiverError
from quivermq.log.picture import Picture, Spoiled
from quivermq.model.backups import Backup
from quivermq.queue.connection import Connection
from quivermq.shared.checkpoint import Checkpoint, encode_checkpoint
from quivermq.shared.chunk import CHAIN_START
from quivermq.shared.memory import MemoryStore, Stopped, StoreFault, StoreStep

pytestmark = pytest.mark.fault("kill", "engine")


def stored(picture: Picture) -> FaultyDisk:
    """A new disk with what is in a picture, by way of a store. Raises Spoiled."""
    target = BackupSet(MemoryStore(), "memory")
    number = target.begin("a queue")
    files = PictureCopy(target, number, SMALL_PARTS, lambda: None).copy(picture, {}, lambda *_: None)
    listed = encode_checkpoint(Checkpoint(0, CHAIN_START, (), tuple(picture.directories), files))
    backup = Backup(number=number, taken_us=0, files=len(files), bytes=0, new_bytes=0)
    target.finish(number, BackupManifest(backup, "a queue", {"": target.put(number, listed)}))
    disk = FaultyDisk()
    restore_from(target, DATA, disk=disk)
    disk.description = "as it was restored"
    return disk.after_kill()


class Taker:
    """Takes a picture before one change of many, and reads it when so many more were made."""

    def __init__(self, change: int, note: Callable[[], None], later: int = 10**6) -> None:
        self.changes = 0
        self.disk: FaultyDisk | None = None
        self.is_spoiled = False
        self._change, self._note, self._read_at = change, note, change + later
        self._picture: Picture | None = None
        self._open = ExitStack()

    def before_change(self, files: SteppingFiles) -> None:
        self.changes += 1
        if self.changes == self._change:
            self._note()
            self._picture = self._open.enter_context(files.picture(DATA, 0))
        elif self.changes == self._read_at:
            self.read()

    def read(self) -> None:
        if self._picture is None:
            return
        try:
            self.disk = stored(self._picture)
        except Spoiled:
            self.is_spoiled = True
        self._picture = None
        self._open.close()


@pytest.mark.parametrize("later", [1, 5, 10**6])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_picture_at_every_step_recovers_as_after_a_kill(scenario: Scenario, later: int) -> None:
    start, history = scenario.prepared()
    change, restored, spoiled = 0, 0, 0
    while True:
        change += 1
        ledger, seen = history.copy(), list[Ledger]()
        taker = Taker(change, lambda ledger=ledger, seen=seen: seen.append(ledger.copy()), later)  # type: ignore[misc]
        with stepping(taker.before_change):
            scenario.run(Witness(start.after_kill(), ledger, scenario.settings))
        if taker.changes < change:
            break
        taker.read()
        spoiled += taker.is_spoiled
        if taker.disk is not None:
            restored += 1
            judge(taker.disk, seen[0], "kill", scenario.settings)
            count_faults()
    # Only what cuts files spoils pictures.
    assert restored > spoiled


@pytest.mark.parametrize("seed", range(12))
def test_everything_that_a_queue_promised_holds_in_a_picture(seed: int) -> None:
    sim = Simulation(f"backup {seed}", ordering=("none", "key")[seed % 2])
    sim.run(15)
    moments: list[LoadHistory] = []
    taker = Taker(sim.rng.randint(1, 120), lambda: moments.append(deepcopy(sim.history)))

    def end(mq: Connection) -> None:
        taker.read()
        mq.close()

    with stepping(taker.before_change):
        sim.run(30, end=end)
    assert moments, "the picture was taken"
    if taker.is_spoiled:
        pytest.skip("files were cut behind the picture")
    assert taker.disk is not None
    sim.disk, sim.history = taker.disk, moments[0]
    sim.history.next_run(9)
    sim.check()
    sim.finish()
    count_faults()


# A backup that ends in the middle.


def messages_in(queue: BackedUp, store: MemoryStore) -> int:
    """How many messages there are in what is restored from the latest backup."""
    restored = queue.restored(store)
    assert restored.report.findings == []
    return restored.report.messages


@pytest.fixture
def queue() -> Iterator[BackedUp]:
    with backed_up() as queue:
        yield queue


@pytest.mark.parametrize("fault", StoreFault, ids=lambda fault: fault.name)
def test_a_backup_that_ends_at_any_step_leaves_the_set_whole(queue: BackedUp, fault: StoreFault) -> None:
    queue.put(100, 2000)
    whole = MemoryStore()
    queue.back_up(whole)
    before = messages_in(queue, whole)
    queue.put(50, 1500, 400)
    at, is_over = 0, False
    while not is_over:
        at += 1
        store = MemoryStore(dict(whole.objects))
        struck = store.beside(lambda step, at=at: fault if step.number == at else None)  # type: ignore[misc]
        try:
            queue.back_up(struck)
            after = {messages_in(queue, store)}
        except (QuiverError, Stopped):
            # It has the backup before, or this one, if only the answer was lost.
            after = {before, before + 3}
        is_over = len(struck.steps) < at
        assert messages_in(queue, store) in after
        struck.is_stopped = False
        struck.deliver_late()
        queue.back_up(store.beside())
        assert messages_in(queue, store) == before + 3
        report = check_backups(queue.backups(store))
        assert report.is_sound, report.damage
        queue.backups(store).prune(1)
        assert queue.garbage(store) == set()
        assert messages_in(queue, store) == before + 3
        count_faults()


@pytest.mark.parametrize("fault", [StoreFault.STOP_BEFORE, StoreFault.STOP_AFTER, StoreFault.FAIL])
def test_pruning_that_ends_at_any_step_is_finished_by_the_next(queue: BackedUp, fault: StoreFault) -> None:
    whole = MemoryStore()
    for size in (2000, 500, 900, 100):
        queue.put(size)
        queue.back_up(whole)
    at, is_over = 0, False
    while not is_over:
        at += 1
        store = MemoryStore(dict(whole.objects))
        struck = store.beside(lambda step, at=at: fault if step.number == at else None)  # type: ignore[misc]
        with suppress(QuiverError, Stopped):
            BackupSet(struck, "memory").prune(2)
        is_over = len(struck.steps) < at
        assert check_backups(queue.backups(store)).is_sound
        queue.backups(store).prune(2)
        assert queue.garbage(store) == set()
        assert len(list(queue.backups(store).entries())) == 2
        assert messages_in(queue, store) == 4
        count_faults()


def at_each_step(act: Callable[[], None], at: int) -> Callable[[StoreStep], None]:
    """Lets something happen just before one step of a store."""

    def fault(step: StoreStep) -> None:
        if step.number == at:
            act()

    return fault


def test_pruning_at_any_step_of_a_backup_takes_nothing_that_it_names(queue: BackedUp) -> None:
    whole = MemoryStore()
    for size in (2000, 500, 900):
        queue.put(size)
        queue.back_up(whole)
    queue.put(700)
    at, is_over = 0, False
    while not is_over:
        at += 1
        store = MemoryStore(dict(whole.objects))
        other = queue.backups(store)
        beside = store.beside(at_each_step(lambda other=other: other.prune(1), at))  # type: ignore[misc]
        queue.back_up(beside)
        is_over = len(beside.steps) < at
        assert check_backups(queue.backups(store)).is_sound
        assert messages_in(queue, store) == 4
        count_faults()


def test_a_second_backup_at_any_step_of_the_first_leaves_one_of_them_whole(queue: BackedUp) -> None:
    queue.put(2000, 500)
    # Now the queue has its identity, and a copy of it is the same queue.
    queue.back_up(MemoryStore())
    disk, clock = queue.disk.after_kill(), ManualClock()
    engine = open_engine(DATA, disk=disk, clock=clock, scheduler=ManualScheduler(clock))
    copied = BackedUp(disk, engine, clock)
    at, is_over, refused = 0, False, 0
    while not is_over:
        at += 1
        store = MemoryStore()

        def second(store: MemoryStore = store) -> None:
            # In another process, which cleans up at once.
            copied.back_up(store.beside())
            queue.backups(store).prune(1)

        first = store.beside(at_each_step(second, at))
        try:
            queue.back_up(first)
        except Conflict:
            refused += 1
        is_over = len(first.steps) < at
        assert check_backups(queue.backups(store)).is_sound
        assert messages_in(queue, store) == 2
        count_faults()
    assert refused
    engine.close()
