"""What goes wrong in the middle of something: the rest is as it should be."""

import pytest
from support.faulty_disk import FaultyDisk
from support.queues import GROUP, TOPIC, Life
from unit.engine.store import Store

import quivermq
from quivermq.delivery import journal
from quivermq.engine import engine_of
from quivermq.topic import deduplication
from quivermq.topic.records import pack


def test_what_one_partition_gave_reaches_the_caller_when_another_has_no_room() -> None:
    outcomes = set()
    for room in range(0, 1000, 20):
        life = Life()
        queue = life.create(partitions=2, attempts_max=1)
        for number in range(4):
            queue.put(b"%d" % number, partition=number % 2)
        engine_of(life.engine).catalog.get(TOPIC).group(GROUP)
        life.disk.fill_after(room)
        try:
            taken = len(queue.get_many(10))
        except quivermq.DiskFull:
            taken = 0
        life.disk.fill_after(None)
        assert queue.stats().in_flight == taken
        outcomes.add(taken)
    assert outcomes == {0, 2, 4}


def test_an_id_that_found_no_room_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication, "_CHECKPOINT_MESSAGES", 20)
    stored = 0
    for room in range(100, 400, 20):
        life = Life()
        queue = life.create()
        queue.put(b"a", dedup_id="a")
        life.disk.fill_after(room)
        try:
            queue.put(b"b", dedup_id="b")
            stored += 1
        except quivermq.DiskFull:
            continue
        finally:
            life.disk.fill_after(None)
        for _ in range(20):
            queue.put(b"x")
        engine_of(life.engine).maintain()
        assert life.reopened().queue().put(b"b", dedup_id="b").duplicate, room
    assert stored > 3


def test_a_cancelled_message_frees_its_id_on_a_full_disk_too() -> None:
    for room in range(0, 600, 20):
        life = Life()
        queue = life.create()
        put = queue.put(b"x", dedup_id="x", delay=1000)
        life.disk.fill_after(room)
        try:
            queue.cancel(str(put.scheduled_id))
        except quivermq.DiskFull:
            # It may or may not be cancelled; its id and the list of what waits say the same.
            assert len(queue.scheduled()) <= 1
        life.disk.fill_after(None)
        is_waiting = bool(queue.scheduled())
        assert queue.put(b"x", dedup_id="x", delay=1000).duplicate == is_waiting


def test_ids_without_a_window_do_not_disturb_what_is_delayed() -> None:
    life = Life()
    queue = life.create(dedup_window_ms=0)
    first = queue.put(b"x", dedup_id="x", delay=10)
    queue.put(b"y", dedup_id="y", delay=20)
    life = life.reopened()
    assert life.queue().cancel(str(first.scheduled_id))
    life.clock.advance(30)
    engine_of(life.engine).maintain()
    delivery = life.queue().get()
    assert delivery is not None
    assert delivery.value == b"y"


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_dead_letter_whose_sync_failed_is_not_written_again(snapshot: bool) -> None:
    life = Life()
    queue = life.create()
    queue.put(b"before")
    first = queue.get()
    assert first is not None
    first.reject()
    queue.put(b"x")
    delivery = queue.get()
    assert delivery is not None
    life.disk.fail_sync("/data/topics/orders.dlq/*", keep="everything")
    with pytest.raises(quivermq.FsyncFailed):
        delivery.reject()
    if snapshot:
        for cursor in engine_of(life.engine).catalog.get(TOPIC).group(GROUP).cursors.values():
            cursor.compact()
    life = life.killed()
    life.wait(31)
    assert life.queue().get() is None
    assert [letter.value for letter in life.queue().dead_letters()] == [b"before", b"x"]


def test_one_bad_receipt_keeps_no_other_from_being_settled() -> None:
    life = Life()
    queue = life.create()
    queue.put_many([b"1", b"2"])
    one, two = queue.get_many(2)
    with pytest.raises(quivermq.LeaseExpired) as caught:
        queue.ack([one.receipt, "orders:7:1:0:abc", two.receipt])
    assert caught.value.receipts == ("orders:7:1:0:abc",)
    assert queue.stats().in_flight == 0


def test_a_deleted_topic_keeps_no_other_from_being_settled() -> None:
    life = Life()
    life.create("e.a").put(b"a")
    life.create("e.b").put(b"b")
    both = life.queue("e.*")
    deliveries = both.get_many(2)
    life.engine.delete_topic("e.a")
    with pytest.raises(quivermq.LeaseExpired):
        both.ack(deliveries)
    assert life.queue("e.b").stats().in_flight == 0


HOSTILE = {
    "lane": pack(journal.FINISH, 200, [0, 1]),
    "garbage": b"\xff" * 16,
    "short": b"abc",
    "few numbers": pack(journal.GRANT, 1, [1]),
    "odd": pack(journal.FINISH, 1, [1]),
    "no numbers": pack(journal.SEEK, 1, []),
    "unknown kind": pack(77, 1, [1]),
    "huge range": pack(journal.FINISH, 1, [0, 2**62]),
    "huge wait": pack(journal.RETRY, 1, [0, 0, 0, 2**62]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_journal_of_somebody_else_stops_its_group_alone(name: str) -> None:
    life = Life()
    queue = life.create()
    queue.put(b"x")
    assert queue.get() is not None
    life.create("other").put(b"fine")
    engine_of(life.engine).catalog.get(TOPIC).group(GROUP).cursors[0]._shared.journal.append(HOSTILE[name])
    life = life.reopened()
    with pytest.raises(quivermq.StorageFailed, match="does not understand"):
        life.queue().get()
    other = life.queue("other").get()
    assert other is not None
    assert life.engine.queue(TOPIC, "new").get() is not None


@pytest.mark.parametrize(
    "settings", [{"frame_messages_max": 100, "batch_messages": 50}, {"frame_raw_bytes_max": 2**20}]
)
def test_batches_keep_to_the_limits_of_the_settings(settings: dict[str, int]) -> None:
    small = {"frame_bytes_max": 2**20, "message_bytes_max": 2**18, "batch_bytes": 2**18}
    limits = settings if "frame_messages_max" in settings else {**small, **settings}
    storage = quivermq.StorageSettings(**limits)  # type: ignore[arg-type]
    queue = Store(FaultyDisk(), quivermq.Settings(storage=storage)).queue("orders", durability="os")
    count = 180 if "frame_messages_max" in settings else 40
    queue.put_many([bytes(60_000) if count == 40 else b"x"] * count)
    queue.reject(queue.get_many(count))
    assert len(queue.dead_letters()) == count
    assert queue.redrive() == count
    assert queue.stats().pending == count


def test_what_somebody_put_there_by_hand_goes_back_with_the_others() -> None:
    life = Life()
    queue = life.create()
    queue.put(b"good")
    delivery = queue.get()
    assert delivery is not None
    delivery.reject()
    graves = life.queue("orders.dlq")
    graves.put(b"lost", headers={"quiver-dlq-topic": b"nowhere"})
    graves.put(b"late", headers={"quiver-dlq-topic": b"orders", "quiver-dlq-timestamp": b"9" * 19})
    assert queue.redrive() == 3
    assert queue.dead_letters() == []
    assert sorted(message.value for message in queue.get_many(5)) == [b"good", b"late", b"lost"]


def test_an_extended_message_is_not_settled() -> None:
    life = Life()
    queue = life.create()
    queue.put(b"x")
    with queue.process() as delivery:
        assert delivery is not None
        queue.extend(delivery, 60)
        assert not delivery.is_settled
    assert queue.stats().in_flight == 0


def test_a_short_lease_beside_a_long_one_leaves_no_timers_behind() -> None:
    life = Life()
    queue = life.create(lease_ms=30_000)
    queue.put_many([b"long"] + [b"short"] * 50)
    with queue.process() as long:
        assert long is not None
        for _ in range(50):
            with queue.process(lease=1) as short:
                assert short is not None
            life.clock.advance(0.5)
            life.scheduler.run_due()
        assert len(life.scheduler._calls) < 10
        life.clock.advance(20)
        life.scheduler.run_due()
    assert queue.stats().in_flight == 0
