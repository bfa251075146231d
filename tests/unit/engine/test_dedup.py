"""Deduplication ids: within the window, across kills, bounded, and with delays."""

from typing import Any

import pytest
from support.threads import start
from unit.engine.store import Store, drain

import quivermq
from quivermq.engine import engine_of
from quivermq.topic.dedup_index import DedupEntry, DedupIndex


def test_the_second_of_an_id_is_answered_with_the_first(store: Store) -> None:
    queue = store.queue(partitions=3)
    first = queue.put(b"first", dedup_id="x", priority="low")
    again = queue.put(b"second", dedup_id="x", priority="high", key=b"k")
    assert again == first._replace(duplicate=True)
    assert drain(queue) == [b"first"]


def test_ids_are_told_apart(store: Store) -> None:
    queue = store.queue()
    ids = ["x", "X", "x ", "é", "e\u0301", "0", "x\0", "a" * 1024]
    assert not any(queue.put(b"x", dedup_id=dedup_id).duplicate for dedup_id in ids)
    assert all(queue.put(b"x", dedup_id=dedup_id).duplicate for dedup_id in ids)
    assert all(
        put.duplicate for put in [store.kill().queue("orders").put(b"x", dedup_id=i) for i in ids[:1]]
    )
    assert all(store.queue().put(b"x", dedup_id=dedup_id).duplicate for dedup_id in ids)


def test_topics_have_their_own_ids(store: Store) -> None:
    assert not store.queue("a").put(b"x", dedup_id="x").duplicate
    assert not store.queue("b").put(b"x", dedup_id="x").duplicate


def test_an_id_is_free_again_after_the_window(store: Store) -> None:
    queue = store.queue(dedup_window_ms=10_000)
    queue.put(b"1", dedup_id="x")
    store.clock.advance(10)
    assert queue.put(b"2", dedup_id="x").duplicate
    store.clock.advance(0.001)
    put = queue.put(b"3", dedup_id="x")
    assert (put.duplicate, put.offset) == (False, 1)
    store.clock.advance(9)
    assert queue.put(b"4", dedup_id="x").offset == 1


def test_the_window_changes_while_running(store: Store) -> None:
    queue = store.queue()
    queue.put(b"1", dedup_id="x")
    store.clock.advance(100)
    store.engine.alter_topic("orders", dedup_window_ms=50_000)
    assert not queue.put(b"2", dedup_id="x").duplicate
    store.engine.alter_topic("orders", dedup_window_ms=0)
    assert not queue.put(b"3", dedup_id="x").duplicate
    assert drain(queue) == [b"1", b"2", b"3"]


def test_a_batch_has_each_id_once(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put(b"old", dedup_id="old")
    message = quivermq.Message
    puts = queue.put_many(
        [message(b"a", dedup_id="1"), b"plain", message(b"b", dedup_id="1"), message(b"c", dedup_id="old")]
    )
    assert [put.duplicate for put in puts] == [False, False, True, True]
    assert puts[2] == puts[0]._replace(duplicate=True)
    assert sorted(drain(queue)) == [b"a", b"old", b"plain"]


@pytest.mark.parametrize("way", ["reopen", "kill"])
def test_ids_survive(store: Store, way: str) -> None:
    queue = store.queue(partitions=2)
    first = [queue.put(b"%d" % n, dedup_id=str(n)) for n in range(20)]
    queue.ack(queue.get_many(20))
    getattr(store, way)()
    again = [store.queue().put(b"again", dedup_id=str(n)) for n in range(20)]
    assert again == [put._replace(duplicate=True) for put in first]


def test_ids_are_bounded_and_the_oldest_go(store: Store) -> None:
    queue = store.queue(durability="os", dedup_entries_max=10)
    for n in range(15):
        queue.put(b"x", dedup_id=str(n))
    assert queue.put(b"x", dedup_id="14").duplicate
    assert queue.put(b"x", dedup_id="5").duplicate
    assert not queue.put(b"x", dedup_id="0").duplicate
    assert queue.put(b"x", dedup_id="0").duplicate


def test_a_delayed_message_has_its_id_at_once(store: Store) -> None:
    queue = store.queue()
    first = queue.put(b"1", dedup_id="x", delay=5)
    again = queue.put(b"2", dedup_id="x")
    assert (again.duplicate, again.scheduled_id) == (True, first.scheduled_id)
    store.kill()
    again = store.queue().put(b"2", dedup_id="x")
    assert (again.duplicate, again.scheduled_id) == (True, first.scheduled_id)
    store.pass_time(5)
    assert drain(store.queue()) == [b"1"]


@pytest.mark.parametrize("way", ["go on", "reopen", "kill"])
def test_a_released_message_is_answered_with_its_offset(store: Store, way: str) -> None:
    queue = store.queue()
    queue.put(b"before")
    queue.put(b"1", dedup_id="x", delay=5)
    store.pass_time(5)
    if way != "go on":
        getattr(store, way)()
    again = store.queue().put(b"2", dedup_id="x")
    assert (again.duplicate, again.offset) == (True, 1)


def test_a_cancelled_message_frees_its_id(store: Store) -> None:
    queue = store.queue()
    put = queue.put(b"1", dedup_id="x", delay=5)
    assert put.scheduled_id
    queue.cancel(put.scheduled_id)
    assert not queue.put(b"2", dedup_id="x").duplicate
    store.kill()
    assert store.queue().put(b"3", dedup_id="x").duplicate


def test_a_refused_put_does_not_take_the_id(store: Store) -> None:
    queue = store.queue(durability="os")
    queue.put(b"first", dedup_id="first")
    store.disk.fill_after(20)
    with pytest.raises(quivermq.DiskFull):
        queue.put(bytes(1000), dedup_id="x")
    store.disk.fill_after(None)
    assert not queue.put(b"x", dedup_id="x").duplicate


def test_a_deleted_topic_takes_its_ids_along(store: Store) -> None:
    store.queue().put(b"x", dedup_id="x")
    store.engine.delete_topic("orders")
    assert not store.queue().put(b"y", dedup_id="x").duplicate


def test_an_id_outlives_its_message(store: Store) -> None:
    queue = store.queue(segment_messages=1, delete_finished=True)
    queue.put(b"1", dedup_id="x")
    queue.put(b"2")
    drain(queue)
    store.engine.compact()
    assert queue.put(b"3", dedup_id="x").duplicate
    store.reopen()
    assert store.queue().put(b"3", dedup_id="x").duplicate


def test_of_many_threads_with_one_id_one_wins(mq: quivermq.Connection) -> None:
    queue = mq.queue("orders")
    futures = [start(lambda: queue.put(b"x", dedup_id="x")) for _ in range(8)]
    puts = [future.result(60) for future in futures]
    assert sorted(put.duplicate for put in puts) == [False] + [True] * 7
    assert {put.offset for put in puts} == {0}
    assert drain(queue) == [b"x"]


def test_a_delivery_tells_its_id(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x", dedup_id="é")
    message = queue.get()
    assert message is not None
    assert message.dedup_id == "é"


def test_a_redriven_message_is_no_duplicate(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x", dedup_id="x")
    message = queue.get()
    assert message is not None
    message.reject()
    assert queue.redrive() == 1
    assert drain(queue) == [b"x"]
    assert queue.put(b"y", dedup_id="x").duplicate


@pytest.mark.parametrize("window_s", [1, 100])
def test_an_id_with_a_window_of_its_own_is_free_again_after_that(store: Store, window_s: int) -> None:
    queue = store.queue(dedup_window_ms=10_000)
    queue.put(b"1", dedup_id="x", dedup_window=window_s)
    queue.put(b"1", dedup_id="usual")
    store.clock.advance(window_s)
    assert queue.put(b"2", dedup_id="x").duplicate
    assert queue.put(b"2", dedup_id="usual").duplicate == (window_s < 10)
    store.clock.advance(0.001)
    put = queue.put(b"3", dedup_id="x")
    assert not put.duplicate
    # Now for as long as the topic says.
    store.clock.advance(10)
    assert queue.put(b"4", dedup_id="x") == put._replace(duplicate=True)
    store.clock.advance(0.001)
    assert not queue.put(b"5", dedup_id="x").duplicate


@pytest.mark.parametrize("death", ["kill", "power"])
@pytest.mark.parametrize("more", [{}, {"delay": 50}], ids=str)
def test_a_window_of_its_own_survives_with_its_message(
    store: Store, death: str, more: dict[str, Any]
) -> None:
    queue = store.queue(dedup_window_ms=1000)
    queue.put(b"1", dedup_id="x", dedup_window=100, durability="fsync", **more)
    queue.put(b"1", dedup_id="short", dedup_window=2, durability="fsync")
    store.clock.advance(40)
    after = _died(store, death)
    assert after.queue("orders").put(b"2", dedup_id="x").duplicate
    assert not after.queue("orders").put(b"2", dedup_id="short").duplicate
    store.clock.advance(20)
    engine_of(store.engine).maintain()
    after = _died(store, death)
    put = after.queue("orders").put(b"2", dedup_id="x")
    assert (put.duplicate, put.scheduled_id) == (True, None)
    store.clock.advance(40.001)
    assert not store.queue().put(b"2", dedup_id="x").duplicate


def _died(store: Store, death: str) -> quivermq.Connection:
    if death == "kill":
        return store.kill()
    store.disk.stop()
    return store.open_again(store.disk.after_power_loss(0, keep="nothing"))


def test_of_too_many_ids_the_oldest_go_whatever_their_windows(store: Store) -> None:
    queue = store.queue(dedup_entries_max=3)
    for number in range(5):
        window = 10_000 + number if number % 2 else None
        queue.put(b"x", dedup_id=str(number), dedup_window=window)
        store.clock.advance(1)
    again = [queue.put(b"x", dedup_id=str(number)).duplicate for number in (4, 3, 2, 1)]
    assert again == [True, True, True, False]


def test_ends_of_ids_that_are_gone_do_not_pile_up() -> None:
    index = DedupIndex(entries_max=10)
    for number in range(10_000):
        index.add(str(number), DedupEntry(number, 0, 0, number, until=10**15 + number))
    assert len(index) == 10
    assert len(index._ends) < 1200
    assert index.find("9994", 0, 10**15 + 9_995) is None
    assert [dedup_id for dedup_id, _ in index] == [str(number) for number in range(9_995, 10_000)]
