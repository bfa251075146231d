"""Groups: each sees every message, and knows nothing of the others."""

import pytest
from unit.engine.store import Store, drain

import quivermq
from quivermq.engine import engine_of
from quivermq.engine.open_topic import OpenTopic


def test_every_group_sees_every_message(store: Store) -> None:
    store.queue(partitions=2).put_many([b"%d" % n for n in range(10)])
    for group in ("default", "billing", "audit", "x" * 249, "a.b-c_d"):
        assert sorted(drain(store.queue(group=group))) == [b"%d" % n for n in range(10)]
    assert store.engine.groups("orders") == sorted(["default", "billing", "audit", "x" * 249, "a.b-c_d"])


def test_groups_are_independent(store: Store) -> None:
    a, b = store.queue(group="a"), store.queue(group="b")
    a.put(b"x")
    first, second = a.get(), b.get()
    assert first is not None
    assert second is not None
    first.nack(delay=0)
    again = a.get()
    assert again is not None
    assert (again.attempt, second.attempt) == (2, 1)
    second.ack()
    again.reject()
    b.seek("earliest")
    assert b.stats().pending == 1
    assert a.stats().backlog == 0


def test_a_group_comes_to_be_with_its_first_get(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    assert store.engine.groups("orders") == []
    queue.get()
    assert store.engine.groups("orders") == ["default"]
    store.queue(group="seeker").seek("latest")
    assert store.engine.groups("orders") == ["default", "seeker"]
    with pytest.raises(quivermq.TopicNotFound):
        store.engine.groups("nowhere")


def test_a_group_that_came_and_got_nothing_is_remembered(store: Store) -> None:
    store.engine.create_topic("orders")
    assert store.queue(group="early").get() is None
    store.reopen()
    assert store.engine.groups("orders") == ["early"]


def test_a_deleted_group_begins_anew(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2"])
    message = queue.get()
    assert message is not None
    message.ack()
    old = queue.get()
    assert old is not None
    assert store.engine.delete_group("orders", "default") is True
    assert store.engine.delete_group("orders", "default") is False
    assert store.engine.groups("orders") == []
    assert not [path for path in store.files() if "groups" in path.parts]
    with pytest.raises(quivermq.QuiverError):
        old.ack()
    assert drain(queue) == [b"1", b"2"]
    store.reopen()
    assert drain(store.queue()) == []


def test_a_deleted_group_is_gone_after_reopening(store: Store) -> None:
    store.queue().put(b"x")
    drain(store.queue())
    store.engine.delete_group("orders", "default")
    store.kill()
    assert store.engine.groups("orders") == []
    assert drain(store.queue()) == [b"x"]


def test_a_group_of_many_topics_is_deleted_from_one(store: Store) -> None:
    for topic in ("a", "b"):
        store.queue(topic).put(b"x")
        drain(store.queue(topic))
    store.engine.delete_group("a", "default")
    assert drain(store.queue("a")) == [b"x"]
    assert drain(store.queue("b")) == []


def test_figures_of_a_group(store: Store) -> None:
    queue = store.queue()
    assert store.queue("nowhere").stats().backlog == 0
    queue.put_many([b"x"] * 6)
    queue.put(b"later", delay=5)
    assert (queue.stats().pending, queue.stats().delayed) == (6, 1)
    messages = queue.get_many(4)
    messages[0].ack()
    messages[1].nack(delay=5)
    messages[2].reject()
    stats = queue.stats()
    assert (stats.topic, stats.group) == ("orders", "default")
    assert (stats.pending, stats.in_flight, stats.retrying) == (2, 1, 1)
    assert (stats.delayed, stats.dead_letters, stats.backlog) == (1, 1, 5)
    assert stats.as_dict()["backlog"] == 5
    store.clock.advance(31)
    stats = queue.stats()
    assert (stats.pending, stats.in_flight, stats.retrying, stats.delayed) == (3, 0, 2, 0)


def test_two_queues_of_one_group_share_the_work(store: Store) -> None:
    store.queue().put_many([b"%d" % n for n in range(4)])
    first, second = store.queue().get_many(2), store.queue().get_many(5)
    assert {m.value for m in first} | {m.value for m in second} == {b"0", b"1", b"2", b"3"}
    store.queue().ack([*first, *second])


def test_the_figures_of_many_groups_look_at_their_topic_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.queue().put(b"x")
    for number in range(50):
        store.queue("orders", f"g{number}").get()
    looks: list[int] = []
    true = OpenTopic.release

    def counted(hosted: OpenTopic, now_us: int) -> None:
        looks.append(now_us)
        true(hosted, now_us)

    monkeypatch.setattr(OpenTopic, "release", counted)
    groups = store.engine.stats().topics["orders"].groups
    assert [groups[f"g{number}"].in_flight for number in range(50)] == [1] * 50
    assert len(looks) == 1


def test_who_walks_over_the_groups_is_not_disturbed_by_new_ones(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    queue.get()
    hosted = engine_of(store.engine).catalog.get("orders")
    for group in hosted.all_groups():
        store.queue("orders", f"beside-{group.name}").get()
    assert sorted(hosted.groups) == ["beside-default", "default"]
