"""What has happened since the queue was opened, and what does not work."""

import pytest
from support.faulty_disk import FaultyDisk
from unit.engine.store import DATA, Store

import quivermq
from quivermq.engine import activity as activity_module
from quivermq.engine import engine_of
from quivermq.engine.activity import GroupActivity, Problem, TopicActivity
from quivermq.log import Log


def test_it_counts_from_the_opening_on(store: Store) -> None:
    orders = store.queue(partitions=2)
    orders.put_many([b"1", b"2", b"3"])
    orders.put(b"4")
    orders.ack(orders.get_many(2))
    orders.get()
    store.queue("orders", "others").get()
    store.queue("events").put(b"x")
    assert engine_of(store.engine).activity() == {
        "events": TopicActivity(1),
        "orders": TopicActivity(4, {"default": GroupActivity(3, 2, 0), "others": GroupActivity(1, 0, 0)}),
    }
    assert engine_of(store.reopen()).activity()["orders"].groups["default"].delivered == 0


def test_the_age_is_that_of_the_oldest_that_is_not_finished(store: Store) -> None:
    queue = store.queue(partitions=2, lease_ms=60_000)
    queue.put(b"old", partition=1)
    store.pass_time(3)
    queue.put(b"new", partition=0)
    store.pass_time(0.5)
    deliveries = {delivery.value: delivery for delivery in queue.get_many(2)}

    def age_ms() -> int:
        return engine_of(store.engine).activity()["orders"].groups["default"].oldest_unacked_ms

    assert age_ms() == 3500
    deliveries[b"old"].ack()
    assert age_ms() == 500
    store.pass_time(1)
    assert age_ms() == 1500
    deliveries[b"new"].ack()
    assert age_ms() == 0


def test_a_group_that_was_deleted_is_not_counted(store: Store) -> None:
    store.queue().put(b"x")
    store.queue().get()
    assert list(engine_of(store.engine).activity()["orders"].groups) == ["default"]
    store.engine.delete_group("orders", "default")
    assert engine_of(store.engine).activity()["orders"].groups == {}


def test_nothing_is_wrong_with_a_queue_that_works(store: Store) -> None:
    store.queue().put(b"x")
    assert engine_of(store.engine).problems() == []


def test_a_log_that_takes_no_more_is_a_problem(faulty_disk: FaultyDisk) -> None:
    store = Store(faulty_disk)
    queue = store.queue(partitions=2)
    queue.put(b"x", partition=1)
    store.disk.fail_sync("*/orders/p1/normal/*")
    with pytest.raises(quivermq.FsyncFailed):
        queue.put(b"x", partition=1)
    [problem] = engine_of(store.engine).problems()
    assert (problem.topic, problem.partition, problem.priority) == ("orders", 1, "normal")
    assert "sync" in problem.message
    store.engine.close()


def test_a_topic_that_cannot_be_opened_is_a_problem(faulty_disk: FaultyDisk) -> None:
    store = Store(faulty_disk)
    store.queue().put(b"x")
    store.queue("events").put(b"x")
    store.engine.close()
    path = DATA / "topics/orders/topic.json"
    store.disk.remove(path)
    file = store.disk.create(path)
    file.append([b"{"])
    file.close()
    engine = store.open_again(store.disk)
    [problem] = engine_of(engine).problems()
    assert (problem.topic, problem.partition, problem.group) == ("orders", None, None)
    assert "topic.json" in problem.message
    assert list(engine_of(engine).activity()) == ["events"]
    engine.close()


def test_damage_that_was_read_is_a_problem(faulty_disk: FaultyDisk) -> None:
    store = Store(faulty_disk)
    queue = store.queue()
    queue.put(b"0" * 100)
    queue.put(b"1")
    store.disk.flip(DATA / "topics/orders/p0/normal/00000000000000000000.log", 150)
    with pytest.raises(quivermq.Corruption):
        list(queue.read(partition=0, start=0, limit=10))
    assert [(found.topic, found.partition) for found in engine_of(store.engine).problems()] == [
        ("orders", 0)
    ]
    store.engine.close()


def test_a_problem_of_all_of_it_has_no_place() -> None:
    assert Problem("the disk is full").topic is None


# Ages are looked up in the logs only where something has changed.


def test_a_log_is_read_once_as_long_as_a_group_stays_where_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    found = activity_module._append_time

    def counted(log: Log, offset: int, now_us: int) -> int:
        asked.append(offset)
        return found(log, offset, now_us)

    monkeypatch.setattr(activity_module, "_append_time", counted)
    queue = store.queue()
    queue.put_many([b"1", b"2"])
    [first, _] = queue.get_many(2)
    for _ in range(3):
        store.pass_time(1)
        engine_of(store.engine).activity()
    assert asked == [0]
    first.ack()
    engine_of(store.engine).activity()
    assert asked == [0, 1]


def test_a_topic_that_is_gone_is_forgotten(store: Store) -> None:
    look = activity_module.Ages(store.clock)
    store.queue().put(b"x")
    store.queue().get()
    came_us = store.clock.now_us()
    store.pass_time(1)
    hosted = {"orders": engine_of(store.engine).catalog.get("orders")}
    assert look.look(hosted) == {("orders", "default"): came_us}
    assert look.oldest_us(hosted["orders"], hosted["orders"].groups["default"]) == came_us
    assert look.look({}) == {}
    assert look._appended == {}
