"""Limits of what there may be: refused by name, and nothing is left behind."""

import pytest
from support.faulty_disk import FaultyDisk
from unit.engine.store import Store

import quivermq
from quivermq.settings import EngineSettings


def limited(disk: FaultyDisk, **limits: int) -> Store:
    return Store(disk, quivermq.Settings(engine=EngineSettings(**limits)))


def test_no_more_topics_than_there_may_be(faulty_disk: FaultyDisk) -> None:
    store = limited(faulty_disk, topics_max=2)
    engine = store.engine
    engine.create_topic("a")
    engine.queue("b").put(b"x")
    with pytest.raises(quivermq.LimitReached, match=r"engine.topics_max = 2") as caught:
        engine.create_topic("c")
    assert (caught.value.setting, caught.value.limit) == ("engine.topics_max", 2)
    with pytest.raises(quivermq.LimitReached):
        engine.queue("c").put(b"x")
    assert engine.topics() == ["a", "b"]
    # Those that are there work, and one that goes makes room, also after a reopening.
    engine.create_topic("a", exist_ok=True)
    engine.queue("b").put(b"y")
    engine = store.reopen()
    engine.delete_topic("a")
    engine.create_topic("c")
    with pytest.raises(quivermq.LimitReached):
        engine.create_topic("d")
    store.close()


def test_dead_letters_are_kept_whatever_the_limit(faulty_disk: FaultyDisk) -> None:
    store = limited(faulty_disk, topics_max=1)
    queue = store.queue()
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    message.reject("bad")
    assert [letter.value for letter in queue.dead_letters()] == [b"x"]
    # But nobody gets around the limit by calling a topic so.
    with pytest.raises(quivermq.LimitReached):
        store.queue("other.dlq").put(b"x")
    store.close()


def test_no_more_partitions_than_there_may_be(faulty_disk: FaultyDisk) -> None:
    store = limited(faulty_disk, partitions_max=4)
    engine = store.engine
    engine.create_topic("a", partitions=3)
    with pytest.raises(quivermq.LimitReached, match=r"engine.partitions_max = 4"):
        engine.create_topic("b", partitions=2)
    assert engine.topics() == ["a"]
    engine.alter_topic("a", partitions=4)
    with pytest.raises(quivermq.LimitReached):
        engine.alter_topic("a", partitions=5)
    assert engine.topic("a").partitions == 4
    # Other settings of a topic are not concerned.
    engine.alter_topic("a", lease_ms=5)
    engine.delete_topic("a")
    engine.create_topic("b", partitions=4)
    store.close()


@pytest.mark.parametrize("setting", ["groups_max", "topic_groups_max"])
def test_no_more_groups_than_there_may_be(faulty_disk: FaultyDisk, setting: str) -> None:
    store = limited(faulty_disk, **{setting: 2})
    store.queue().put(b"x")
    for group in ("a", "b"):
        assert store.queue(group=group).get() is not None
    with pytest.raises(quivermq.LimitReached, match=f"engine.{setting} = 2"):
        store.queue(group="c").get()
    with pytest.raises(quivermq.LimitReached):
        store.queue(group="c").seek("earliest")
    assert store.engine.groups("orders") == ["a", "b"]
    engine = store.reopen()
    engine.delete_group("orders", "a")
    assert store.queue(group="c").get() is not None
    store.queue("events").put(b"x")
    if setting == "groups_max":
        with pytest.raises(quivermq.LimitReached):
            store.queue("events", "a").get()
    else:
        assert store.queue("events", "a").get() is not None
    store.close()


def test_a_queue_that_has_more_than_it_may_have_opens_and_works(faulty_disk: FaultyDisk) -> None:
    store = Store(faulty_disk)
    for name in ("a", "b", "c"):
        store.queue(name, partitions=2).put(b"x")
        for group in ("g", "h"):
            store.queue(name, group).pop()
    store.engine.close()
    store = limited(faulty_disk, topics_max=1, partitions_max=1, groups_max=1, topic_groups_max=1)
    engine = store.engine
    assert engine.topics() == ["a", "b", "c"]
    engine.queue("a").put(b"y")
    assert engine.queue("a", "h").pop() is not None
    with pytest.raises(quivermq.LimitReached):
        engine.create_topic("d")
    with pytest.raises(quivermq.LimitReached):
        engine.queue("a", "i").get()
    with pytest.raises(quivermq.LimitReached):
        engine.alter_topic("a", partitions=3)
    store.close()
