"""Metrics of the engine, and what it says to the log."""

import logging
from typing import Any

import pytest
from unit.engine.store import Store, drain

import quivermq
from quivermq.engine import engine_of


def collected(store: Store) -> list[Any]:
    return list(engine_of(store.engine).collect_metrics())


def value(store: Store, name: str, **labels: str) -> Any:
    found = [s for s in collected(store) if s["name"] == name and labels.items() <= s["labels"].items()]
    assert found, f"there is no {name} {labels}"
    return sum(sample["value"] for sample in found)


def test_what_happens_to_messages_is_counted(store: Store) -> None:
    queue = store.queue(lease_ms=1000)
    queue.put(b"1")
    queue.put(b"2", key=b"k")
    queue.put_many([b"3", b"4", quivermq.Message(b"5", ttl=0.5)])
    messages = queue.get_many(2)
    messages[0].ack()
    messages[1].nack(delay=0)
    queue.get_many(1)[0].reject()
    late = queue.get()
    assert late is not None
    store.pass_time(1)
    with pytest.raises(quivermq.LeaseExpired):
        late.ack()
    drain(queue)
    of_group = {"topic": "orders", "group": "default"}
    assert value(store, "quiver_messages_published_total", topic="orders") == 5
    assert value(store, "quiver_messages_delivered_total", **of_group) == 6
    assert value(store, "quiver_messages_acked_total", **of_group) == 3
    assert value(store, "quiver_messages_nacked_total", **of_group) == 1
    assert value(store, "quiver_messages_dead_lettered_total", **of_group) == 1
    assert value(store, "quiver_leases_expired_total", **of_group) == 1
    assert value(store, "quiver_messages_expired_total", **of_group) == 1
    assert value(store, "quiver_receipts_refused_total", **of_group) == 1


def test_refused_receipts_of_many_are_counted(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2"])
    messages = queue.get_many(2)
    queue.ack(messages)
    with pytest.raises(quivermq.LeaseExpired):
        queue.ack(messages)
    assert value(store, "quiver_receipts_refused_total") == 2


def test_refused_and_dropped_messages_are_counted(store: Store) -> None:
    queue = store.queue(backlog_messages_max=1)
    queue.put(b"1")
    with pytest.raises(quivermq.Overloaded):
        queue.put_many([b"2", b"3"])
    assert value(store, "quiver_messages_refused_total", topic="orders") == 2
    store.engine.alter_topic("orders", backlog_policy="drop_oldest")
    queue.put(b"2")
    assert value(store, "quiver_messages_dropped_total", topic="orders") == 1


def test_duplicates_are_not_published(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x", dedup_id="x")
    queue.put(b"x", dedup_id="x")
    assert value(store, "quiver_messages_published_total", topic="orders") == 1


def test_gauges_tell_how_much_there_is(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"x"] * 5)
    queue.put(b"x", delay=5)
    queue.get_many(2)[0].reject()
    assert value(store, "quiver_topic_messages", topic="orders") == 5
    assert value(store, "quiver_topic_delayed", topic="orders") == 1
    assert value(store, "quiver_topic_dead_letters", topic="orders") == 1
    assert value(store, "quiver_group_pending", topic="orders", group="default") == 3
    assert value(store, "quiver_group_in_flight", topic="orders", group="default") == 1


def test_there_are_histograms_with_percentiles(store: Store) -> None:
    queue = store.queue()
    for _ in range(100):
        queue.put(b"x")
        message = queue.get()
        assert message is not None
        message.ack()
    histograms = [sample for sample in collected(store) if sample["kind"] == "histogram"]
    assert histograms, "issue 3 asks for histograms with p50, p95 and p99"
    for sample in histograms:
        assert {"p50", "p95", "p99"} <= sample.keys()
    assert any(sample["count"] for sample in histograms)


def test_all_kinds_of_metrics_are_there(store: Store) -> None:
    drain(store.queue())
    store.queue().put(b"x")
    assert {sample["kind"] for sample in collected(store)} == {"counter", "gauge", "histogram"}


def test_a_deleted_topic_is_no_longer_measured(store: Store) -> None:
    store.queue().put(b"x")
    collected(store)
    store.engine.delete_topic("orders")
    gauges = [s for s in collected(store) if s["kind"] == "gauge" and s["labels"].get("topic") == "orders"]
    assert [sample for sample in gauges if sample["value"]] == []


def test_loggers_are_of_the_package(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    queue = store.queue(backlog_messages_max=1, backlog_policy="drop_oldest")
    with caplog.at_level(logging.DEBUG):
        queue.put(b"1")
        queue.put(b"2")
        message = queue.get()
        assert message is not None
        message.reject("because")
    assert {record.name.split(".")[0] for record in caplog.records} == {"quivermq"}
    assert any("dropped" in record.getMessage() for record in caplog.records)


def test_how_long_the_disk_takes_is_observed(store: Store) -> None:
    queue = store.queue(durability="os")
    before = observed(store, "quiver_fsync_seconds")
    queue.put(b"1", durability="os")
    assert observed(store, "quiver_fsync_seconds") == before
    queue.put(b"2", durability="fsync")
    assert observed(store, "quiver_fsync_seconds") == before + 1
    engine_of(store.engine).catalog.get("orders").topic.partitions[0].log(1).sync()
    assert observed(store, "quiver_fsync_seconds") == before + 1


def observed(store: Store, name: str) -> int:
    return sum(sample["count"] for sample in collected(store) if sample["name"] == name)


def test_the_age_of_the_oldest_unfinished_message_is_told(store: Store) -> None:
    queue = store.queue(lease_ms=60_000)
    of_group = {"topic": "orders", "group": "default"}
    assert queue.get() is None
    assert value(store, "quiver_group_oldest_unacked_seconds", **of_group) == 0
    queue.put(b"1")
    store.pass_time(5)
    queue.put(b"2", priority="high")
    assert value(store, "quiver_group_oldest_unacked_seconds", **of_group) == 5
    messages = {message.value: message for message in queue.get_many(2)}
    store.pass_time(2)
    # What is in flight is not finished, and asking twice does not make it younger.
    assert value(store, "quiver_group_oldest_unacked_seconds", **of_group) == 7
    messages[b"1"].ack()
    assert value(store, "quiver_group_oldest_unacked_seconds", **of_group) == 2
    messages[b"2"].ack()
    assert value(store, "quiver_group_oldest_unacked_seconds", **of_group) == 0


def test_lag_and_backlog_of_a_group_are_told(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2", b"3"])
    queue.put(b"4", delay=60)
    queue.get()
    of_group = {"topic": "orders", "group": "default"}
    assert value(store, "quiver_group_lag", **of_group) == 2
    assert value(store, "quiver_group_backlog", **of_group) == 4


def test_open_files_are_counted(mq: quivermq.Connection) -> None:
    mq.queue("orders").put(b"1")
    [before] = [s["value"] for s in engine_of(mq).collect_metrics() if s["name"] == "process_open_fds"]
    mq.queue("events").put(b"1")
    [after] = [s["value"] for s in engine_of(mq).collect_metrics() if s["name"] == "process_open_fds"]
    assert after > before > 0
