"""Subscriptions to all topics of a pattern."""

import pytest
from unit.engine.store import Store, drain, values

import quivermq


@pytest.fixture
def zoo(store: Store) -> Store:
    for name in ("events", "events.a", "events.b", "events.a.x", "other.a"):
        store.queue(name).put(name.encode())
    return store


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("events.*", ["events.a", "events.b"]),
        ("events.>", ["events.a", "events.a.x", "events.b"]),
        ("*", ["events"]),
        (">", ["events", "events.a", "events.a.x", "events.b", "other.a"]),
        ("*.a", ["events.a", "other.a"]),
        ("*.*", ["events.a", "events.b", "other.a"]),
        ("*.a.>", ["events.a.x"]),
        ("nothing.*", []),
    ],
)
def test_what_a_pattern_sees(zoo: Store, pattern: str, topics: list[str]) -> None:
    queue = zoo.queue(pattern)
    assert queue.stats().pending == len(topics)
    messages = queue.get_many(100)
    assert sorted(message.topic for message in messages) == topics
    assert sorted(values(messages)) == [topic.encode() for topic in topics]
    queue.ack(messages)
    assert queue.get() is None
    assert queue.stats().backlog == 0


def test_topics_that_come_later_are_seen(zoo: Store) -> None:
    queue = zoo.queue("events.*")
    drain(queue)
    zoo.queue("events.new").put(b"x")
    message = queue.get()
    assert message is not None
    assert message.topic == "events.new"


def test_topics_that_go_are_not_missed(zoo: Store) -> None:
    queue = zoo.queue("events.*")
    first = queue.get()
    assert first is not None
    zoo.engine.delete_topic("events.a")
    zoo.engine.delete_topic("events.b")
    assert queue.get() is None
    assert queue.stats().backlog == 0


def test_no_topic_starves(store: Store) -> None:
    for name in ("t.a", "t.b", "t.c"):
        store.queue(name).put_many([b"x"] * 20)
    queue = store.queue("t.*")
    first = [message.topic for _ in range(9) if (message := queue.get())]
    assert {first.count(name) for name in ("t.a", "t.b", "t.c")} == {3}


def test_dead_letters_are_not_swept_in(store: Store) -> None:
    store.queue("t.a").put(b"x")
    queue = store.queue(">")
    message = queue.get()
    assert message is not None
    message.reject()
    assert queue.get() is None
    letters = store.queue("t.*.dlq").get_many(5)
    assert values(letters) == [b"x"]


def test_the_group_of_a_pattern_is_the_same_in_each_topic(store: Store) -> None:
    store.queue("t.a").put_many([b"1", b"2"])
    pattern = store.queue("t.*", group="g")
    message = pattern.get()
    assert message is not None
    message.ack()
    assert drain(store.queue("t.a", group="g")) == [b"2"]
    assert store.engine.groups("t.a") == ["g"]


def test_processing_and_streaming_a_pattern(store: Store) -> None:
    store.queue("t.a").put(b"1")
    store.queue("t.b").put(b"2")
    queue = store.queue("t.*")
    with queue.process() as message:
        assert message is not None
    assert len(list(queue.stream(timeout=0))) == 1
    assert queue.pop() is None
    assert queue.stats().backlog == 0


def test_delayed_messages_of_a_pattern(store: Store) -> None:
    store.queue("t.a").put(b"1", delay=5)
    queue = store.queue("t.*")
    assert queue.get() is None
    store.clock.advance(5)
    assert drain(queue) == [b"1"]


def test_a_pattern_names_no_topic(store: Store) -> None:
    for name in ("a.*", ">", "*"):
        with pytest.raises(quivermq.InvalidName):
            store.engine.create_topic(name)
