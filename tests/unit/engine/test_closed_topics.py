"""Topics that are there and not open: opened when they are used, or when something falls due in them."""

from collections.abc import Iterator

import pytest
from support.faulty_disk import FaultyDisk
from unit.engine.store import DATA, Store

import quivermq
from quivermq.engine import engine_of, opening
from quivermq.log import repair
from quivermq.log.directory import CATALOG_NAME as NAME


@pytest.fixture
def store(faulty_disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A queue that opens nothing before it is used."""
    monkeypatch.setattr(opening, "_OPENED_AT_START", 0)
    store = Store(faulty_disk)
    yield store
    store.close()


def open_topics(engine: quivermq.Connection) -> list[str]:
    return sorted(name for name in engine.topics() if not engine_of(engine).catalog.table.is_closed(name))


def test_only_what_is_used_is_opened(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.queue(name).put_many([b"1", b"2"])
    engine = store.reopen()
    assert engine.topics() == ["a", "b", "c"]
    assert open_topics(engine) == []
    message = store.queue("b").get()
    assert message is not None
    assert message.value == b"1"
    assert open_topics(engine) == ["b"]
    store.queue("c").put(b"3")
    assert open_topics(engine) == ["b", "c"]
    # Closing does not open the others, and the next opening knows as much of all of them.
    assert store.reopen().stats().messages == 7
    assert open_topics(store.engine) == []


def test_figures_are_the_same_whether_topics_are_open_or_not(store: Store) -> None:
    orders = store.queue("orders", partitions=2, lease_ms=3_600_000, attempts_max=1)
    orders.put_many([b"%d" % number for number in range(10)])
    orders.put(b"later", delay=3600)
    taken = orders.get_many(4)
    orders.ack(taken[:1])
    taken[1].nack(delay=3600)
    taken[2].reject("bad")
    store.queue("orders", "other").get()
    store.queue("events").put(b"x")
    store.pass_time(5)
    before, activity = store.engine.stats(), engine_of(store.engine).activity()
    assert before.topics["orders"].dead_letters == 2
    engine = store.reopen()
    assert engine.stats() == before
    assert engine.stats().topics["orders"].groups["other"].state == "consuming"
    ages = {
        name: each.oldest_unacked_at for name, each in engine_of(engine).activity()["orders"].groups.items()
    }
    assert ages == {name: each.oldest_unacked_at for name, each in activity["orders"].groups.items()}
    assert engine_of(engine).activity()["orders"].groups["default"].oldest_unacked_ms == 5000
    samples = {
        (sample["name"], sample["labels"].get("group")): sample.get("value")
        for sample in engine_of(engine).collect_metrics()
        if sample["labels"].get("topic") == "orders"
    }
    assert samples["quiver_topic_messages", None] == 10
    assert samples["quiver_group_oldest_unacked_seconds", "default"] == 5
    assert engine_of(engine).problems() == []
    assert open_topics(engine) == []
    # Opened, they say the same.
    for name in engine.topics():
        engine_of(engine).catalog.get(name)
    assert engine.stats() == before


def test_a_delayed_message_comes_to_a_topic_that_nobody_uses(store: Store) -> None:
    store.queue("quiet").put(b"x")
    store.queue("later").put(b"due", delay=60)
    engine = store.reopen()
    store.pass_time(59)
    assert open_topics(engine) == []
    store.pass_time(2)
    assert open_topics(engine) == ["later"]
    assert engine.stats().topics["later"].messages == 1


def test_who_asks_at_the_time_is_told_what_is_due_by_then(store: Store) -> None:
    store.queue("later").put(b"due", delay=60)
    engine = store.reopen()
    store.clock.advance(61)
    stats = engine.stats().topics["later"]
    assert (stats.messages, stats.delayed) == (1, 0)


def test_a_lease_runs_out_in_a_topic_that_nobody_uses(store: Store) -> None:
    queue = store.queue("orders", lease_ms=30_000, attempts_max=1)
    queue.put(b"x")
    assert queue.get() is not None
    engine = store.reopen()
    assert engine.stats().topics["orders"].groups["default"].in_flight == 1
    store.pass_time(31)
    stats = engine.stats().topics["orders"]
    assert (stats.dead_letters, stats.groups["default"].in_flight) == (1, 0)


def test_retention_takes_messages_from_a_topic_that_nobody_uses(store: Store) -> None:
    store.queue("old", retention_ms=60_000).put(b"x")
    store.queue("kept").put(b"x")
    engine = store.reopen()
    store.pass_time(61)
    store.pass_time(31)
    assert open_topics(engine) == ["old"]
    assert {name: each.messages for name, each in engine.stats().topics.items()} == {"kept": 1, "old": 0}


def test_a_topic_that_may_be_over_its_limits_is_opened_at_once(store: Store) -> None:
    store.queue("finished", delete_finished=True).put(b"x")
    engine = store.reopen()
    store.pass_time(1)
    assert open_topics(engine) == ["finished"]


def test_after_a_crash_what_was_used_is_looked_at_and_nothing_else(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.queue(name).put(b"x")
    store.reopen()
    store.queue("b").put(b"y", durability="os")
    engine = store.kill()
    assert engine.topics() == ["a", "b", "c"]
    assert open_topics(engine) == []
    store.pass_time(1)
    assert open_topics(engine) == ["b"]
    assert {name: each.messages for name, each in engine.stats().topics.items()} == {"a": 1, "b": 2, "c": 1}
    assert open_topics(engine) == ["b"]


def test_figures_after_a_crash_are_those_of_the_files(store: Store) -> None:
    store.queue("a").put(b"x")
    store.reopen()
    store.queue("a").put(b"y")
    engine = store.kill()
    # Nobody has opened it yet, and nobody knows how many it has: so it is opened for the answer.
    assert engine.stats().topics["a"].messages == 2


def test_without_a_catalog_everything_is_opened_little_by_little(store: Store) -> None:
    for name in ("a", "b"):
        store.queue(name).put(b"x")
    store.engine.close()
    for path in [path for path in store.disk.files() if path.is_relative_to(DATA / NAME)]:
        store.disk.remove(path)
    engine = store.open_again(store.disk)
    assert engine.topics() == ["a", "b"]
    store.pass_time(1)
    assert open_topics(engine) == ["a", "b"]


def test_a_damaged_catalog_is_as_good_as_none(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.queue("a").put(b"x")
    store.reopen()
    store.engine.close()
    path = max(path for path in store.disk.files() if path.match(f"{NAME}/*.log"))
    store.disk.flip(path, 90)
    engine = store.open_again(store.disk)
    assert engine.stats().topics["a"].messages == 1
    assert "the catalog of topics is not used" in caplog.text
    assert store.reopen().stats().topics["a"].messages == 1


def test_on_a_full_disk_topics_are_opened_and_read(store: Store) -> None:
    store.queue("a").put(b"x")
    engine = store.reopen()
    store.disk.fill_after(0)
    assert [message.value for message in engine.queue("a").read()] == [b"x"]
    store.disk.fill_after(None)
    # The catalog is gone, and no entry of before tells of a topic that was used.
    store.disk.stop()
    assert store.open_again(store.disk.after_kill()).stats().topics["a"].messages == 1


def test_a_topic_that_cannot_be_opened_is_set_aside_when_it_is_used(store: Store) -> None:
    store.queue("good").put(b"x")
    store.queue("bad").put(b"x")
    store.engine.close()
    store.disk.flip(DATA / "topics/bad/topic.json", 5)
    engine = store.open_again(store.disk)
    assert engine.topics() == ["bad", "good"]
    with pytest.raises(quivermq.StorageFailed):
        engine.queue("bad").get()
    assert engine.topics() == ["good"]
    assert [problem.topic for problem in engine_of(engine).problems()] == ["bad"]
    with pytest.raises(quivermq.StorageFailed):
        engine.create_topic("bad")


def test_a_topic_that_is_not_open_can_be_altered_and_deleted(store: Store) -> None:
    for name in ("a", "b"):
        store.queue(name).put(b"x")
    store.queue("b", "other").get()
    engine = store.reopen()
    with pytest.raises(quivermq.TopicExists):
        engine.create_topic("a")
    engine.alter_topic("a", partitions=3)
    engine.delete_topic("b")
    engine = store.reopen()
    assert engine.topics() == ["a"]
    assert engine.stats().topics["a"].partitions == 3
    assert engine.topic("a").partitions == 3
    engine.create_topic("b")
    assert engine.stats().topics["b"].groups == {}


def test_a_pattern_finds_topics_that_are_not_open(store: Store) -> None:
    for name in ("events.a", "events.b", "orders"):
        store.queue(name).put(name.encode())
    engine = store.reopen()
    found = {message.value for message in engine.queue("events.*").get_many(10)}
    assert found == {b"events.a", b"events.b"}
    assert open_topics(engine) == ["events.a", "events.b"]


def test_a_dead_letter_on_its_way_when_the_process_died_is_found(store: Store) -> None:
    queue = store.queue("orders", attempts_max=1)
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    message.reject("bad")
    assert store.queue("orders").redrive() == 1
    engine = store.kill()
    assert engine.stats().topics["orders"].dead_letters == 0
    again = engine.queue("orders").get()
    assert again is not None
    assert again.value == b"x"


def test_maintenance_looks_only_where_something_may_fall_due(store: Store) -> None:
    for number in range(5):
        store.queue(f"t{number}").put(b"x")
    queue = store.queue("t3")
    message = queue.get()
    assert message is not None
    store.pass_time(1)
    assert {hosted.name for hosted in engine_of(store.engine).catalog.table.busy} == {"t3"}
    message.ack()
    store.pass_time(1)
    assert not engine_of(store.engine).catalog.table.busy
    assert queue.get() is None
    queue.put(b"later", delay=5)
    store.pass_time(1)
    assert {hosted.name for hosted in engine_of(store.engine).catalog.table.busy} == {"t3"}
    store.pass_time(5)
    late = queue.get()
    assert late is not None
    assert late.value == b"later"


def test_a_repair_lets_the_queue_look_at_its_topics_anew(store: Store) -> None:
    store.queue("a").put_many([b"1", b"2"])
    store.engine.close()
    log = max(path for path in store.disk.files() if path.match("a/p0/normal/*.log"))
    store.disk.flip(log, 85)
    assert repair(DATA, disk=store.disk).mended
    assert not store.disk.is_directory(DATA / NAME)
    engine = store.open_again(store.disk)
    assert engine.stats().topics["a"].messages == 2
