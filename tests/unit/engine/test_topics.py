"""Topics: made, looked at, changed, deleted, and made again."""

from unittest.mock import ANY

import pytest
from unit.engine.store import DATA, Store, drain, values

import quivermq
from quivermq.engine import engine_of


def test_topics_are_listed_by_name(store: Store) -> None:
    assert store.engine.topics() == []
    for name in ("b", "a.x", "A", "0", "-", "_", "a" * 249):
        store.engine.create_topic(name)
    assert store.engine.topics() == sorted(["b", "a.x", "A", "0", "-", "_", "a" * 249])


def test_a_topic_tells_how_it_is_set(store: Store) -> None:
    store.engine.create_topic("t", partitions=3, lease_ms="5000", priority_weights="strict", ttl_ms=None)
    info = store.engine.topic("t")
    assert (info.name, info.partitions) == ("t", 3)
    assert (info.settings.lease_ms, info.settings.priority_weights) == (5000, "strict")
    with pytest.raises(quivermq.TopicNotFound):
        store.engine.topic("u")


def test_settings_survive(store: Store) -> None:
    store.engine.create_topic("t", partitions=3, lease_ms=5000)
    store.engine.alter_topic("t", lease_ms=6000, ordering="key", priority_weights=(3, 2, 1))
    settings = store.engine.topic("t").settings
    assert store.kill().topic("t").settings == settings
    assert (settings.lease_ms, settings.partitions, settings.ordering) == (6000, 3, "key")


def test_a_topic_of_the_longest_name_has_dead_letters(store: Store) -> None:
    queue = store.queue("t" * 249)
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    message.reject()
    assert values(queue.dead_letters()) == [b"x"]
    assert queue.redrive() == 1


def test_partitions_grow_while_running(store: Store) -> None:
    queue = store.queue(partitions=1)
    queue.put_many([b"%d" % n for n in range(3)])
    taken = queue.get()
    store.engine.alter_topic("orders", partitions=4)
    assert {queue.put(b"new", partition=p).partition for p in range(4)} == {0, 1, 2, 3}
    assert {put.partition for put in queue.put_many([b"new"] * 8)} == {0, 1, 2, 3}
    assert taken is not None
    taken.ack()
    assert len(drain(queue)) == 2 + 12
    store.reopen()
    assert store.engine.topic("orders").partitions == 4
    assert drain(store.queue()) == []


def test_a_deleted_topic_is_gone(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put_many([b"x"] * 5)
    queue.put(b"x", delay=5)
    message = queue.get()
    assert message is not None
    store.engine.delete_topic("orders")
    assert store.engine.topics() == []
    assert not [path for path in store.files() if "orders" in path.parts]
    with pytest.raises(quivermq.TopicNotFound):
        store.engine.topic("orders")
    with pytest.raises(quivermq.TopicNotFound):
        store.engine.delete_topic("orders")
    assert queue.get() is None
    assert queue.stats().backlog == 0
    assert queue.scheduled() == []
    for settle in (message.ack, message.nack, message.reject, lambda: message.extend(5)):
        with pytest.raises(quivermq.QuiverError):
            settle()
    for call in (
        queue.read,
        queue.peek,
        lambda: queue.seek("earliest"),
        lambda: queue.ack(message.receipt),
    ):
        with pytest.raises(quivermq.QuiverError):
            call()
    assert store.engine.topics() == []


@pytest.mark.parametrize("way", ["go on", "reopen", "kill"])
def test_nothing_of_a_deleted_topic_comes_back(store: Store, way: str) -> None:
    queue = store.queue(partitions=2, lease_ms=1000, attempts_max=10)
    queue.put_many([quivermq.Message(b"old", priority=p, dedup_id=p) for p in ("high", "normal", "low")])
    queue.put(b"old", delay=5, dedup_id="delayed")
    queue.get_many(1)[0].nack(delay=2)
    old = queue.get()
    assert old is not None
    store.engine.delete_topic("orders")
    if way != "go on":
        getattr(store, way)()
        queue = store.queue()
    store.engine.create_topic("orders", partitions=2)
    assert store.engine.groups("orders") == []
    assert store.engine.topic("orders").settings.lease_ms == 30_000
    store.pass_time(10)
    assert queue.get() is None
    assert queue.scheduled() == []
    put = queue.put(b"new", dedup_id="high")
    assert (put.offset, put.duplicate) == (0, False)
    with pytest.raises(quivermq.QuiverError):
        old.ack()
    with pytest.raises(quivermq.QuiverError):
        queue.ack(old.receipt)
    message = queue.get()
    assert message is not None
    assert (message.value, message.attempt, message.offset) == (b"new", 1, 0)
    with pytest.raises(quivermq.LeaseExpired):
        queue.ack(old.receipt)
    message.ack()
    assert store.reopen().queue("orders").stats().backlog == 0


def test_a_put_after_the_deletion_makes_the_topic_anew(store: Store) -> None:
    queue = store.queue(partitions=3)
    queue.put(b"old")
    store.engine.delete_topic("orders")
    assert queue.put(b"new").offset == 0
    assert store.engine.topic("orders").partitions == 1
    assert drain(queue) == [b"new"]


def test_dead_letters_outlive_their_topic(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    message.reject()
    store.engine.delete_topic("orders")
    assert store.engine.topics() == ["orders.dlq"]
    assert values(store.queue().dead_letters()) == [b"x"]
    with pytest.raises(quivermq.TopicNotFound):
        store.queue().redrive()
    assert values(store.queue().dead_letters()) == [b"x"]
    store.engine.create_topic("orders")
    assert store.queue().redrive() == 1
    assert drain(store.queue()) == [b"x"]


def test_a_deletion_that_was_interrupted_goes_on(store: Store) -> None:
    store.queue().put(b"x")
    step = store.disk.steps + 4
    store.disk.stop_at(step, torn=1.0)
    with pytest.raises(BaseException, match="died"):
        store.engine.delete_topic("orders")
    engine = store.open_again(store.disk.after_kill())
    assert engine.topics() == []
    assert store.queue().put(b"y").offset == 0
    assert drain(store.queue()) == [b"y"]


def test_topics_are_deleted_while_others_go_on(store: Store) -> None:
    store.queue("a").put(b"a")
    store.queue("a.b").put(b"b")
    store.queue("ab").put(b"c")
    store.engine.delete_topic("a")
    assert store.engine.topics() == ["a.b", "ab"]
    assert drain(store.queue("a.b")) == [b"b"]
    assert drain(store.queue("ab")) == [b"c"]


def test_a_topic_whose_settings_file_is_lost_is_adopted(store: Store) -> None:
    store.queue(partitions=3).put(b"x", partition=2)
    store.engine.close()
    store.disk.remove(DATA / "topics/orders/topic.json")
    engine = store.open_again(store.disk)
    assert engine.topic("orders").partitions == 3
    assert drain(engine.queue("orders")) == [b"x"]


def test_the_figures_of_the_whole(store: Store) -> None:
    store.queue("a", partitions=2).put_many([b"x"] * 3)
    store.queue("b").put(b"x", delay=5)
    store.queue("a").get()
    stats = store.engine.stats()
    assert (stats.messages, sorted(stats.topics)) == (3, ["a", "b"])
    assert stats.bytes > 0
    assert stats.topics["a"].groups["default"].in_flight == 1
    assert stats.topics["b"].delayed == 1
    assert stats.as_dict() == {
        "topics": ANY,
        "messages": 3,
        "bytes": stats.bytes,
        "free_bytes": stats.free_bytes,
        "alerts": [],
    }


def test_watchers_are_told_what_happens_to_topics(store: Store) -> None:
    told: list[tuple[str, str]] = []
    engine_of(store.engine).catalog.watchers.append(lambda name, change: told.append((name, change)))
    store.engine.create_topic("orders")
    store.queue("events").put(b"1")
    store.engine.alter_topic("orders", lease_ms=5)
    with pytest.raises(quivermq.InvalidSettings):
        store.engine.alter_topic("orders", lease_ms=0)
    store.engine.delete_topic("orders")
    assert told == [
        ("orders", "created"),
        ("events", "created"),
        ("orders", "altered"),
        ("orders", "deleted"),
    ]
