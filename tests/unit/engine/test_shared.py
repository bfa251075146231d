import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.shared import PATIENT, fail, heal, opened

import quivermq
from quivermq.engine import Engine, engine_of, open_engine
from quivermq.errors import DiskRefused, NotOwner, QuiverError, StoreBehind, StoreUnreachable
from quivermq.model.lanes import NORMAL
from quivermq.model.operations import GetStats
from quivermq.settings import Durability
from quivermq.shared import SharedDisk
from quivermq.shared.memory import MemoryStore


class Owner:
    """An owner of the disk with the queue open, in which nothing happens by itself."""

    def __init__(self, disk: SharedDisk) -> None:
        self.disk = disk
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.engine = open_engine(disk.root, disk=disk, clock=self.clock, scheduler=self.scheduler)
        self.mq = quivermq.Connection(self.engine)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def owner(store: MemoryStore) -> Iterator[Owner]:
    with opened(store, PATIENT) as disk:
        yield Owner(disk)


def chunks_put(store: MemoryStore) -> int:
    return sum(step.name.startswith("chunk/") and step.operation != "get" for step in store.steps)


def chunks_of(store: MemoryStore, act: Callable[[], object]) -> int:
    before = chunks_put(store)
    act()
    return chunks_put(store) - before


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


# One wait for many.


def test_many_topics_are_opened_used_and_closed_in_a_few_chunks(store: MemoryStore) -> None:
    names = [f"topic{n}" for n in range(50)]
    with opened(store, PATIENT) as disk:
        mq = Owner(disk).mq
        for name in names:
            assert chunks_of(store, partial(mq.create_topic, name, partitions=2)) <= 2
        for name in names:
            queue = mq.queue(name)
            queue.put_many([b"x"] * 10)
            queue.get_many(2)
        assert chunks_of(store, mq.close) <= 2
        disk.close()
    again = store.beside()
    with opened(again, PATIENT) as disk:
        begun = chunks_put(again)
        mq = Owner(disk).mq
        assert len(mq.topics()) == 50
        disk.commits.commit(disk.commits.ticket())
        assert chunks_put(again) - begun <= 3
        assert chunks_of(again, mq.sync) == 0
        assert all(len(mq.queue(name).get_many(100)) == 8 for name in names)
        assert chunks_of(again, mq.close) <= 2


@pytest.mark.parametrize(
    ("act", "most"),
    [
        (lambda queue: queue.put(b"x"), 1),
        (lambda queue: queue.put_many([b"x"] * 800), 1),
        (lambda queue: queue.put_many([quivermq.Message(b"x", delay=60 * n) for n in range(200)]), 1),
        (lambda queue: queue.put_many([quivermq.Message(b"x", dedup_id=f"{n}") for n in range(200)]), 1),
        (lambda queue: queue.put(b"x", dedup_id="of before"), 0),
        (lambda queue: queue.get_many(100), 1),
        (lambda queue: queue.ack(queue.get_many(100)), 2),
        (lambda queue: [queue.reject(each) for each in queue.get_many(3)], 4),
        (lambda queue: queue.purge(), 1),
        (lambda queue: queue.seek("latest"), 1),
        (lambda queue: queue.read(partition=0), 0),
        (lambda queue: queue.stats(), 0),
    ],
)
def test_a_call_waits_once_for_all_partitions(
    store: MemoryStore, owner: Owner, act: Callable[[Any], object], most: int
) -> None:
    owner.mq.create_topic("orders", partitions=8, dedup_window_ms=1000)
    queue = owner.mq.queue("orders")
    queue.put(b"x", dedup_id="of before")
    queue.put_many([b"x"] * 80)
    queue.get()
    before = chunks_of(store, lambda: act(queue))
    assert before <= most


def test_dead_letters_are_moved_back_in_one_chunk(store: MemoryStore, owner: Owner) -> None:
    owner.mq.create_topic("orders", partitions=4)
    queue = owner.mq.queue("orders")
    queue.put_many([b"x"] * 40)
    queue.reject(queue.get_many(40), reason="no")
    assert chunks_of(store, lambda: queue.redrive(limit=10)) == 1
    assert chunks_of(store, queue.discard) == 1
    assert queue.stats().dead_letters == 0


def test_what_is_due_keeps_nobody_waiting(store: MemoryStore, owner: Owner) -> None:
    owner.mq.create_topic("orders", partitions=4, durability="os")
    queue = owner.mq.queue("orders")
    queue.put_many([quivermq.Message(b"x", delay=10) for _ in range(40)])
    queue.get_many(2)
    fail(owner.disk, store)
    owner.clock.advance(20)
    # Delays, leases, flushes: with a store that does not answer none of them waits.
    owner.scheduler.run_due()
    owner.engine.maintain()
    heal(owner.disk, store)
    assert len(queue.get_many(100)) == 40


def test_many_threads_wait_for_the_same_chunk(store: MemoryStore) -> None:
    """However many wait, none of them has to be through before the next one can begin."""
    with opened(store, PATIENT) as disk:
        mq = Owner(disk).mq
        queues = [mq.queue(f"topic{n}") for n in range(2)]
        for queue in queues:
            queue.put(b"first")
        arrived, before = threading.Semaphore(0), chunks_put(store)
        commit = disk.commits._entered_commit

        def counting(ticket: int) -> None:
            arrived.release()
            commit(ticket)

        disk.commits._entered_commit = counting

        def hold(_: object) -> None:
            store.fault = lambda _: None
            for _ in range(64):
                assert arrived.acquire(timeout=30)

        store.fault = hold
        threads = [in_thread(partial(queues[n % 2].put, b"%d" % n)) for n in range(64)]
        for thread in threads:
            thread.join(30)
        assert chunks_put(store) - before <= 2
        found = [each.value for queue in queues for each in queue.read(limit=100)]
        assert sorted(found) == sorted([b"first"] * 2 + [b"%d" % n for n in range(64)])


# Readers.


def puts_that_wait(store: MemoryStore, owner: Owner, durability: Durability) -> quivermq.Queue:
    """A queue of which the first message is committed, and the second is not."""
    owner.mq.create_topic("orders", durability=durability)
    queue = owner.mq.queue("orders")
    queue.put(b"first", durability="fsync")
    owner.mq.sync()
    fail(owner.disk, store)
    queue.put(b"second", durability="os")
    return queue


def frames_of(owner: Owner) -> list[bytes]:
    frames = owner.engine.frames("orders", 0, "normal", 0, 2)
    return [value for frame in frames for value in frame.values()]


@pytest.mark.parametrize(
    "look",
    [
        lambda owner: owner.mq.queue("orders").read(limit=10),
        lambda owner: owner.mq.queue("orders").peek(10),
        lambda owner: owner.mq.queue("orders").get_many(2),
        frames_of,
    ],
)
@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_nobody_is_shown_what_may_be_taken_back(
    store: MemoryStore, owner: Owner, look: Callable[[Owner], list[object]], durability: Durability
) -> None:
    puts_that_wait(store, owner, durability)
    with pytest.raises(StoreUnreachable):
        look(owner)
    heal(owner.disk, store)
    assert len(look(owner)) == 2


def test_what_is_committed_can_be_read_while_the_store_is_away(store: MemoryStore, owner: Owner) -> None:
    queue = puts_that_wait(store, owner, "fsync")
    assert [each.value for each in queue.read(limit=1)] == [b"first"]
    frames = owner.engine.frames("orders", 0, "normal", 0, 1)
    assert [value for frame in frames for value in frame.values()] == [b"first"]
    assert queue.stats().pending == 2


def test_what_was_read_ahead_is_shown_only_when_it_is_committed(store: MemoryStore, owner: Owner) -> None:
    queue = puts_that_wait(store, owner, "os")
    with pytest.raises(StoreUnreachable):
        queue.get()
    # It was given back, and both are in memory now.
    with pytest.raises(StoreUnreachable):
        queue.get_many(2)
    heal(owner.disk, store)
    found = queue.get_many(2)
    assert [(each.value, each.attempt) for each in found] == [(b"first", 1), (b"second", 1)]


# A store that does not answer.


def test_nothing_is_fenced_by_a_store_that_does_not_answer(store: MemoryStore, owner: Owner) -> None:
    mq, queue = owner.mq, owner.mq.queue("orders")
    mq.create_topic("orders", partitions=2, segment_bytes=1024)
    queue.put_many([b"x" * 100] * 20)
    [held] = queue.get_many(1)
    fail(owner.disk, store)
    acts: list[Callable[[], object]] = [
        lambda: queue.put(b"y"),
        lambda: queue.put_many([b"y" * 100] * 20),
        lambda: queue.put(b"y", delay=60),
        lambda: queue.put(b"y", dedup_id="y", dedup_window=60),
        lambda: queue.get_many(2),
        lambda: queue.ack([held]),
        lambda: mq.create_topic("more"),
        lambda: mq.create_topic("more", exist_ok=True),
        lambda: queue.seek("latest"),
        queue.purge,
        mq.compact,
        mq.sync,
    ]
    for act in acts:
        with pytest.raises(StoreUnreachable):
            act()
    owner.clock.advance(10)
    owner.scheduler.run_due()
    assert owner.engine.problems() == []
    assert not owner.engine.is_fenced
    heal(owner.disk, store)
    queue.put(b"z")
    mq.sync()
    assert "more" in mq.topics()
    assert mq.verify().findings == []
    mq.close()


def test_writers_that_outrun_the_store_are_refused_and_go_on(store: MemoryStore) -> None:
    with opened(store, replace(PATIENT, uncommitted_bytes_max=10_000)) as disk:
        owner = Owner(disk)
        owner.mq.create_topic("orders", durability="os")
        queue = owner.mq.queue("orders")
        fail(owner.disk, store)
        puts = [partial(queue.put, bytes(1000))] * 100
        with pytest.raises(StoreBehind):
            [put() for put in puts]
        assert not owner.engine.is_fenced
        heal(owner.disk, store)
        queue.put(b"last")
        assert queue.read(limit=1000)[-1].value == b"last"


def test_closing_tells_what_is_not_committed_and_can_be_tried_again(
    store: MemoryStore, owner: Owner
) -> None:
    owner.mq.create_topic("orders", durability="os")
    owner.mq.queue("orders").put(b"x")
    fail(owner.disk, store)
    with pytest.raises(StoreUnreachable):
        owner.mq.close()
    heal(owner.disk, store)
    owner.mq.close()
    with opened(store.beside(), PATIENT) as disk:
        assert [each.value for each in Owner(disk).mq.queue("orders").read()] == [b"x"]


# Another owner.


@pytest.fixture
def lost(store: MemoryStore, owner: Owner, caplog: pytest.LogCaptureFixture) -> Iterator[Owner]:
    """An owner that was replaced, and knows it."""
    owner.mq.create_topic("orders", durability="buffered")
    queue = owner.mq.queue("orders")
    queue.put_many([b"x"] * 5, durability="fsync")
    with opened(store.beside(), PATIENT):
        with pytest.raises(NotOwner):
            queue.put(b"y", durability="fsync")
        caplog.clear()
        yield owner


def test_who_was_replaced_changes_nothing_and_says_so(lost: Owner) -> None:
    queue = lost.mq.queue("orders")
    for act in (
        lambda: queue.put(b"y"),
        lambda: queue.put_many([b"y"] * 10),
        queue.get,
        lambda: lost.mq.create_topic("more"),
        lambda: queue.seek("latest"),
    ):
        with pytest.raises(NotOwner):
            act()
    [problem] = lost.engine.problems()
    assert problem.topic is None
    assert "another process has taken over" in problem.message
    stats = lost.engine.perform(GetStats())
    assert any("another process has taken over" in alert.summary for alert in stats.alerts)


def test_who_was_replaced_shows_what_is_committed(lost: Owner) -> None:
    queue = lost.mq.queue("orders")
    assert [each.value for each in queue.read(limit=5)] == [b"x"] * 5
    with pytest.raises(NotOwner):
        queue.read(limit=10)


def test_who_was_replaced_closes_quietly(
    lost: Owner, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    with suppress(NotOwner):
        lost.mq.queue("orders").put(b"z", durability="buffered")
    lost.mq.close()
    lost.mq.close()
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
    # Its lock is gone with it.
    with pytest.raises(QuiverError), suppress(DiskRefused):
        open_engine(lost.disk.root, disk=lost.disk)


def test_who_was_replaced_looks_after_nothing_and_logs_it_once(
    lost: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        lost.clock.advance(60)
        lost.scheduler.run_due()
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert errors[0].startswith("nothing is looked after any more: ")


def test_a_local_queue_has_the_plain_engine(tmp_path: Any) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        assert type(engine_of(mq)) is Engine
        assert engine_of(mq).commits is None


def test_a_lane_is_durable_as_far_as_it_is_committed(store: MemoryStore, owner: Owner) -> None:
    puts_that_wait(store, owner, "os")
    owner.clock.advance(10)
    owner.scheduler.run_due()
    log = owner.engine.catalog.get("orders").topic.partitions[0].logs[NORMAL]
    assert log is not None
    assert (log.end, log.synced_end, log.durable_end) == (2, 2, 1)
    heal(owner.disk, store)
    owner.mq.sync()
    assert log.durable_end == 2
