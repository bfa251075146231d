"""The queue, unchanged, over a shared disk: its process ends at every step of the store, another goes on.

Whatever was acknowledged is there for the next owner, nothing is there twice, and whoever was the owner
acknowledges nothing any more.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.shared import LIMITS, at_step, files_of, open_disk, queue_on

import quivermq
from quivermq.engine import open_engine
from quivermq.errors import NotOwner, QuiverError, StorageFailed, StoreUnreachable
from quivermq.shared import SharedDisk, SharedLimits
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep

TOPIC, GROUP = "orders", "billing"
SMALL = replace(LIMITS, part_bytes_min=400)
# Every file that is not being written leaves the cache as soon as it may.
NO_CACHE = replace(SMALL, part_bytes_min=1, quiet_bytes_min=1, cache_bytes_max=0)
Place = tuple[int, int]


@dataclass
class Known:
    """What the queue has said to those who use it."""

    puts: dict[Place, bytes] = field(default_factory=dict)
    acked: set[Place] = field(default_factory=set)
    settling: set[Place] = field(default_factory=set)
    """What somebody wanted to settle: whether it is, only the queue knows."""
    delayed: set[bytes] = field(default_factory=set)

    def note(self, value: bytes, put: quivermq.Put) -> None:
        assert put.partition is not None
        assert put.offset is not None
        place = (put.partition, put.offset)
        assert place not in self.puts, "an offset was given twice"
        self.puts[place] = value


class Process:
    """One owner of the disk with the queue open, in which nothing happens by itself."""

    def __init__(self, store: MemoryStore, limits: SharedLimits = SMALL) -> None:
        self.disk = open_disk(store, limits)
        try:
            self.clock = ManualClock()
            self.scheduler = ManualScheduler(self.clock)
            engine = open_engine(self.disk.root, disk=self.disk, clock=self.clock, scheduler=self.scheduler)
        except BaseException:
            self.disk.abandon()
            raise
        self.mq = quivermq.Connection(engine)
        self.queue = self.mq.queue(TOPIC, GROUP)

    def end(self) -> None:
        """As kill -9 does."""
        self.disk.abandon()


def use(process: Process, known: Known, name: str) -> None:
    """A bit of everything, each noted when it was acknowledged."""
    mq, queue = process.mq, process.queue
    mq.create_topic(TOPIC, partitions=2, exist_ok=True, segment_bytes=1024)
    for n in range(3):
        value = f"{name} {n}".encode() * 10
        known.note(value, queue.put(value, key=b"%d" % n))
    values = [f"{name} many {n}".encode() for n in range(20)]
    for value, put in zip(values, queue.put_many(values), strict=True):
        known.note(value, put)
    delayed = f"{name} delayed".encode()
    queue.put(delayed, delay=3600)
    known.delayed.add(delayed)
    process.disk.checkpoint()
    taken = queue.get_many(4)
    known.settling |= {(each.partition, each.offset) for each in taken[:2]}
    queue.ack(taken[:2])
    known.acked |= {(each.partition, each.offset) for each in taken[:2]}
    queue.reject(taken[2:3], reason="no")
    queue.release(taken[3:])
    known.note(b"last " + name.encode(), queue.put(b"last " + name.encode()))
    process.disk.clean()


def judge(process: Process, known: Known) -> None:
    """Everything that was acknowledged is there, and nothing that was done with comes again."""
    report = process.mq.verify()
    assert report.findings == []
    if TOPIC not in process.mq.topics():
        assert not known.puts
        return
    queue = process.queue
    stored = {
        (partition, record.offset): record.value
        for partition in range(2)
        for record in queue.read(partition=partition, limit=1000)
    }
    assert known.puts.items() <= stored.items()
    # Those that an earlier look has let fall due are in the log by now.
    assert known.delayed <= {each.value for each in queue.scheduled()} | set(stored.values())
    process.clock.advance(3600 * 24)
    process.scheduler.run_due()
    again = queue.get_many(1000)
    places = [(each.partition, each.offset) for each in again]
    assert len(set(places)) == len(places)
    assert not known.acked & set(places)
    letters = {letter.value for letter in queue.dead_letters()}
    missing = known.puts.keys() - known.settling - set(places)
    assert {known.puts[place] for place in missing} <= letters
    queue.release(again)


def count_steps(act: Callable[[MemoryStore], object]) -> int:
    store = MemoryStore()
    act(store)
    return len(store.steps)


def run(store: MemoryStore, known: Known, name: str, limits: SharedLimits) -> None:
    process = Process(store, limits)
    try:
        use(process, known, name)
        process.mq.close()
        process.disk.close()
    finally:
        process.end()


def crashes(limits: SharedLimits) -> Iterator[tuple[int, StoreFault]]:
    steps = count_steps(lambda store: run(store, Known(), "first", limits))
    assert steps > 20
    for step in range(1, steps + 1):
        yield step, StoreFault.STOP_BEFORE
        yield step, StoreFault.STOP_AFTER


def test_another_owner_sees_the_same() -> None:
    store, known = MemoryStore(), Known()
    first = open_disk(store)
    with queue_on(first) as mq:
        queue = mq.queue(TOPIC, GROUP)
        for n in range(10):
            known.note(b"%d" % n, queue.put(b"%d" % n))
        [message] = queue.get_many(1)
        message.ack()
    seen = files_of(first)
    first.close()
    second = open_disk(store.beside())
    assert files_of(second) == seen
    with queue_on(second) as mq:
        queue = mq.queue(TOPIC, GROUP)
        assert [each.value for each in queue.get_many(100)] == [b"%d" % n for n in range(1, 10)]
        assert mq.verify().findings == []
    second.close()


@pytest.mark.parametrize("limits", [SMALL, NO_CACHE], ids=["cache", "no cache"])
def test_a_process_ends_at_every_step_and_another_goes_on(limits: SharedLimits) -> None:
    for step, fault in crashes(limits):
        store, known = MemoryStore(), Known()
        with suppress(QuiverError, RuntimeError):
            run(store.beside(fault=at_step(step, fault)), known, "first", limits)
        second = Process(store, limits)
        judge(second, known)
        use(second, known, "second")
        second.end()
        third = Process(store, limits)
        judge(third, known)
        third.mq.close()
        third.disk.close()
        is_read_away = any(step.operation == "get_range" for step in store.steps)
        assert is_read_away == (limits is NO_CACHE)


@pytest.mark.parametrize("limits", [SMALL, NO_CACHE], ids=["cache", "no cache"])
def test_the_next_one_ends_at_every_step_of_its_opening(limits: SharedLimits) -> None:
    known = Known()
    store = MemoryStore()
    first = Process(store, limits)
    use(first, known, "first")
    first.end()
    objects = dict(store.objects)

    def opening(store: MemoryStore) -> None:
        Process(store, limits).end()

    for step in range(1, count_steps(lambda _: opening(MemoryStore(dict(objects)))) + 40):
        for fault in (StoreFault.STOP_BEFORE, StoreFault.STOP_AFTER):
            store = MemoryStore(dict(objects))
            with suppress(QuiverError, RuntimeError):
                opening(store.beside(fault=at_step(step, fault)))
            third = Process(store, limits)
            judge(third, known)
            third.end()


@pytest.mark.parametrize(
    "fault", [StoreFault.FAIL, StoreFault.LOSE_ANSWER, StoreFault.LATE, StoreFault.DOUBLE]
)
def test_a_store_that_stumbles_at_every_other_step(fault: StoreFault) -> None:
    store, known = MemoryStore(), Known()

    def stumble(step: StoreStep) -> StoreFault | None:
        return fault if step.number % 2 and step.operation.startswith("put") else None

    shaky = store.beside(fault=stumble)
    process = Process(shaky)
    for round_number in range(3):
        # A checkpoint may be refused; everything else waits.
        with suppress(StoreUnreachable):
            use(process, known, f"round {round_number}")
        shaky.deliver_late()
    process.end()
    shaky.deliver_late()
    after = Process(store)
    judge(after, known)
    after.end()


def test_a_zombie_acknowledges_nothing() -> None:
    store, known = MemoryStore(), Known()
    zombie = Process(store)
    use(zombie, known, "first")
    held = zombie.queue.get_many(2)
    owner = Process(store.beside())
    taken = owner.queue.get_many(2)
    for act in (
        lambda: zombie.queue.put(b"late"),
        lambda: zombie.queue.put_many([b"late"] * 10),
        lambda: zombie.queue.ack(held),
        lambda: zombie.queue.get_many(1),
        lambda: zombie.mq.create_topic("late"),
        zombie.mq.sync,
        zombie.disk.checkpoint,
    ):
        with pytest.raises((NotOwner, StorageFailed)):
            act()
    assert isinstance(zombie.disk.failure, NotOwner)
    owner.queue.ack(taken)
    known.acked |= {(each.partition, each.offset) for each in taken}
    known.settling |= known.acked
    use(owner, known, "second")
    with suppress(QuiverError):
        zombie.mq.close()
    zombie.disk.close()
    owner.end()
    third = Process(store)
    judge(third, known)
    assert "late" not in third.mq.topics()
    third.end()


def test_a_zombie_that_wakes_at_any_later_moment_finds_out() -> None:
    """However far the next owner has come, with checkpoints and trims in between."""
    for rounds in range(4):
        store, known = MemoryStore(), Known()
        zombie = Process(store)
        use(zombie, known, "first")
        owner = Process(store.beside())
        for n in range(rounds):
            use(owner, known, f"second {n}")
        with pytest.raises((NotOwner, StorageFailed)):
            zombie.queue.put(b"late")
        assert isinstance(zombie.disk.failure, NotOwner)
        use(owner, known, "third")
        zombie.end()
        owner.end()
        after = Process(store)
        judge(after, known)
        after.end()


def test_a_queue_waits_for_its_store_and_goes_on() -> None:
    store = MemoryStore()
    disk: SharedDisk = open_disk(store, replace(LIMITS, commit_timeout_s=0.05))
    with queue_on(disk) as mq:
        queue = mq.queue(TOPIC, GROUP)
        queue.put(b"before")
        store.fault = lambda _: StoreFault.FAIL
        with pytest.raises(StoreUnreachable):
            queue.put(b"during")
        store.fault = lambda _: None
        # It was written, and is committed with what comes next.
        queue.put(b"after")
        assert [each.value for each in queue.read()] == [b"before", b"during", b"after"]
    disk.close()
    again = open_disk(store.beside())
    with queue_on(again) as mq:
        assert [each.value for each in mq.queue(TOPIC).read()] == [b"before", b"during", b"after"]
    again.close()
