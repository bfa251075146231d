"""A disk without a single byte left: what is there can be read, and room can be made."""

from pathlib import Path

import pytest
from unit.engine.store import Store, drain, values

import quivermq
from quivermq.engine import engine_of
from quivermq.topic.stored import load_topic

DATA = Path("/data")


def used(store: Store) -> None:
    """Some of everything, in segments that can go."""
    queue = store.queue(partitions=2, segment_messages=5, delete_finished=True)
    for number in range(40):
        queue.put(b"%d" % number, partition=number % 2, dedup_id=str(number))
    queue.put(b"late", delay=3600)
    for message in queue.get_many(30):
        message.ack()
    rejected = queue.get()
    assert rejected is not None
    rejected.reject("broken")
    store.queue("plain").put_many([b"a", b"b"])


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("free_bytes_min", [0, 1000])
def test_it_opens_and_everything_can_be_read(store: Store, is_killed: bool, free_bytes_min: int) -> None:
    used(store)
    store._settings = quivermq.Settings(engine=quivermq.EngineSettings(free_bytes_min=free_bytes_min))
    store.disk.fill_after(0)
    store.kill() if is_killed else store.reopen()
    assert store.disk.free_bytes(DATA) == 0
    queue = store.queue()
    assert store.engine.topics() == ["orders", "orders.dlq", "plain"]
    assert engine_of(store.engine).problems() == []
    assert (
        values(store.queue("plain").read(limit=5)) == values(store.queue("plain").peek(5)) == [b"a", b"b"]
    )
    assert values(queue.scheduled()) == [b"late"]
    assert len(queue.dead_letters()) == 1
    stats = queue.stats()
    assert (stats.pending, stats.dead_letters, stats.delayed) == (9, 1, 1)
    with pytest.raises(quivermq.DiskFull, match="free_bytes_min" if free_bytes_min else "no space left"):
        queue.put(b"x")
    # What was done with makes room.
    assert store.engine.compact().segments > 0
    assert store.disk.free_bytes(DATA) > 0
    store.disk.fill_after(None)
    engine_of(store.engine).maintain()
    assert queue.put(b"x", partition=0, dedup_id="0").duplicate
    assert not queue.put(b"x", dedup_id="new").duplicate
    assert len(drain(queue)) == 10


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_topic_can_be_deleted(store: Store, is_killed: bool) -> None:
    used(store)
    store._settings = quivermq.Settings(engine=quivermq.EngineSettings(free_bytes_min=0))
    store.disk.fill_after(0)
    store.reopen()
    store.engine.delete_topic("orders")
    assert store.engine.topics() == ["orders.dlq", "plain"]
    store.kill() if is_killed else store.reopen()
    assert store.engine.topics() == ["orders.dlq", "plain"]
    engine_of(store.engine).maintain()
    store.queue("plain").put(b"c")
    assert drain(store.queue("plain")) == [b"a", b"b", b"c"]


def test_a_deletion_that_died_on_a_full_disk_goes_on(store: Store) -> None:
    used(store)
    store.engine.close()
    path = DATA / "topics/orders"
    store.disk.rename(path / "topic.json", path / "topic.json.deleted")
    stored = load_topic(store.disk, path)
    assert stored is not None
    assert stored.deleted
    store.open_again(store.disk)
    assert store.engine.topics() == ["orders.dlq", "plain"]
    assert not store.disk.exists(path)


def test_ids_that_only_the_messages_tell_are_not_forgotten(store: Store) -> None:
    queue = store.queue()
    for number in range(3):
        queue.put(b"x", dedup_id=str(number))
    store.engine.close()
    for name in store.disk.names(DATA / "topics/orders/seen"):
        store.disk.remove(DATA / "topics/orders/seen" / name)
    store.disk.remove_directory(DATA / "topics/orders/seen")
    store.disk.fill_after(0)
    store.open_again(store.disk)
    assert len(store.queue().read(limit=5)) == 3
    store.disk.fill_after(None)
    engine_of(store.engine).maintain()
    assert store.queue().put(b"x", dedup_id="1").duplicate
    store.queue().put(b"x", dedup_id="new")
    store.kill()
    assert store.queue().put(b"x", dedup_id="2").duplicate


def test_a_topic_for_which_there_was_no_room_opens_once_there_is(store: Store) -> None:
    used(store)
    store.engine.close()
    # Without an index, nobody knows where the last whole frame of a log is until one is written.
    for name in store.disk.names(DATA / "topics/plain/p0/normal"):
        if name.endswith(".idx"):
            store.disk.remove(DATA / "topics/plain/p0/normal" / name)
    store.disk.fill_after(0)
    store.open_again(store.disk)
    assert "orders" in store.engine.topics()
    if "plain" not in store.engine.topics():
        with pytest.raises(quivermq.DiskFull):
            store.queue("plain").get()
    store.disk.fill_after(None)
    engine_of(store.engine).maintain()
    assert drain(store.queue("plain")) == [b"a", b"b"]
