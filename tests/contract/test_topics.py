"""Topics and groups: made, looked at, altered, deleted."""

from typing import Any

import pytest
from contract.wrong import mistakes

import quivermq


def test_a_topic_has_the_settings_it_was_made_with(mq: Any) -> None:
    mq.create_topic("orders", partitions=3, ordering="key", lease_ms=5000, priority_weights=(5, 2, 1))
    info = mq.topic("orders")
    assert isinstance(info, quivermq.TopicInfo)
    assert (info.name, info.partitions) == ("orders", 3)
    assert isinstance(info.settings, quivermq.TopicSettings)
    assert (info.settings.ordering, info.settings.lease_ms) == ("key", 5000)
    assert info.settings.priority_weights == (5, 2, 1)


def test_a_topic_can_be_altered(mq: Any) -> None:
    mq.create_topic("orders")
    mq.alter_topic("orders", partitions=2, attempts_max=None)
    assert (mq.topic("orders").partitions, mq.topic("orders").settings.attempts_max) == (2, None)


def test_a_topic_that_is_there_may_be_left_as_it_is(mq: Any) -> None:
    mq.create_topic("orders", exist_ok=True, partitions=2)
    mq.create_topic("orders", exist_ok=True, partitions=5)
    assert mq.topic("orders").partitions == 2
    with pytest.raises(quivermq.TopicExists):
        mq.create_topic("orders", exist_ok=False)
    with pytest.raises(quivermq.InvalidSettings):
        mq.create_topic("orders", exist_ok=True, partitions=0)


def test_topics_are_listed_by_name(mq: Any) -> None:
    for name in ("b", "a", "c.d"):
        mq.create_topic(name)
    mq.queue("e").put(b"x")
    assert mq.topics() == ["a", "b", "c.d", "e"]


def test_a_deleted_topic_is_gone(mq: Any) -> None:
    mq.queue("orders").put(b"x")
    mq.delete_topic("orders")
    assert mq.topics() == []
    assert mq.queue("orders").get() is None


def test_groups_are_listed_and_forgotten(mq: Any) -> None:
    mq.queue("orders").put(b"x")
    for group in ("one", "two"):
        mq.queue("orders", group).get()
    assert mq.groups("orders") == ["one", "two"]
    assert mq.delete_group("orders", "one") is True
    assert mq.delete_group("orders", "one") is False
    assert mq.groups("orders") == ["two"]
    assert mq.queue("orders", "one").stats().pending == 1


WRONG: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda mq: mq.create_topic("orders"), quivermq.TopicExists),
    (lambda mq: mq.create_topic("a/b"), quivermq.InvalidName),
    (lambda mq: mq.create_topic(""), quivermq.InvalidName),
    (lambda mq: mq.create_topic(5), quivermq.InvalidName),
    (lambda mq: mq.create_topic("new", partitions=0), quivermq.InvalidSettings),
    (lambda mq: mq.create_topic("new", colour="red"), quivermq.InvalidSettings),
    (lambda mq: mq.create_topic("new", partitions=object()), quivermq.InvalidSettings),
    (lambda mq: mq.alter_topic("orders", partitions=1), quivermq.InvalidSettings),
    (lambda mq: mq.alter_topic("none", lease_ms=5), quivermq.TopicNotFound),
    (lambda mq: mq.delete_topic("none"), quivermq.TopicNotFound),
    (lambda mq: mq.topic("none"), quivermq.TopicNotFound),
    (lambda mq: mq.topic("a b"), quivermq.InvalidName),
    (lambda mq: mq.groups("none"), quivermq.TopicNotFound),
    (lambda mq: mq.delete_group("none", "g"), quivermq.TopicNotFound),
    (lambda mq: mq.delete_group("orders", "a/b"), quivermq.InvalidName),
    (lambda mq: mq.queue("a/b"), quivermq.InvalidName),
    (lambda mq: mq.queue("a.>.b"), quivermq.InvalidName),
    (lambda mq: mq.queue("orders", ""), quivermq.InvalidName),
]


def test_what_is_wrong_is_named(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    assert mistakes(WRONG, mq) == []
    assert mq.topics() == ["orders"]


def test_an_error_has_its_fields(mq: Any) -> None:
    with pytest.raises(quivermq.InvalidSettings) as caught:
        mq.create_topic("orders", partitions=-1)
    assert caught.value.key == "partitions"
    assert "partitions" in str(caught.value)


def test_the_whole_is_counted(mq: Any) -> None:
    mq.queue("a").put_many([b"x", b"y"])
    mq.queue("a", "g").get()
    mq.queue("b").put(b"z", delay=600)
    stats = mq.stats()
    assert isinstance(stats, quivermq.EngineStats)
    assert list(stats.topics) == ["a", "b"]
    assert (stats.messages, stats.topics["b"].delayed) == (2, 1)
    assert stats.topics["a"].groups["g"] == quivermq.QueueStats("a", "g", pending=1, in_flight=1)
    assert stats.free_bytes > 0
    assert stats.bytes == stats.topics["a"].bytes > 0


def test_what_is_wrong_and_what_groups_do_is_told(mq: Any) -> None:
    queue = mq.queue("a", "g")
    queue.put_many([b"x", b"y"])
    assert (queue.stats().state, mq.stats().alerts) == ("waiting", [])
    queue.get().reject("broken")
    [*_, wait] = mq.stats().alerts
    assert isinstance(wait, quivermq.Alert)
    assert (wait.alert, wait.severity, wait.topic, wait.group) == (
        "QuiverDeadLettersWait",
        "ticket",
        "a",
        None,
    )
    assert wait.summary == "1 dead letter of a waits for a decision"
    assert (mq.stats().topics["a"].groups["g"].state, queue.stats().state) == ("consuming", "consuming")
    queue.get().ack()
    assert (queue.stats().state, mq.queue("*", "g").stats().state) == ("idle", "idle")
    assert mq.queue("nowhere").stats().state == "idle"


def test_a_look_at_every_byte_counts_them(mq: Any) -> None:
    mq.queue("orders").put_many([b"x", b"y"])
    report = mq.verify()
    assert isinstance(report, quivermq.Report)
    assert report.is_sound
    assert report.messages == 2
    assert isinstance(mq.compact(), quivermq.Compacted)
