"""Frames that were encoded elsewhere, and producers whose repeated sends are recognised."""

from typing import Any

import pytest
from unit.engine.store import Store, drain, refused

import quivermq
from quivermq.engine import engine_of
from quivermq.frame import encode


def frame(*messages: bytes, sequence: int = 0, producer: int = 7, epoch: int = 0, **columns: Any) -> bytes:
    sender = quivermq.Producer(producer, epoch, sequence)
    return bytes(encode(messages, timestamp=1_700_000_000_000_000, producer=sender, **columns))


def test_a_frame_is_appended_as_it_is(store: Store) -> None:
    queue = store.queue()
    queue.put(b"first")
    put = queue.put_frame(frame(b"a", b"b", producer=0, keys=[b"k", None]))
    assert (put.partition, put.priority, put.offset, put.duplicate) == (0, "normal", 1, False)
    messages = queue.get_many(5)
    assert [(m.value, m.key) for m in messages] == [(b"first", None), (b"a", b"k"), (b"b", None)]


def test_a_frame_wakes_and_counts_like_other_messages(store: Store) -> None:
    queue = store.queue()
    queue.put_frame(frame(b"a", b"b", producer=0))
    assert queue.stats().pending == 2
    published = [
        s
        for s in engine_of(store.engine).metrics.collect()
        if s["name"] == "quiver_messages_published_total"
    ]
    assert sum(sample["value"] for sample in published) == 2


def test_a_repeated_send_is_answered_with_the_first_offset(store: Store) -> None:
    queue = store.queue(partitions=2)
    first = queue.put_frame(frame(b"a", b"b"), partition=1, priority="high")
    second = queue.put_frame(frame(b"c", sequence=2), partition=1, priority="high")
    again = queue.put_frame(frame(b"a", b"b"), partition=1, priority="high")
    assert (first.offset, second.offset) == (0, 2)
    assert again == first._replace(duplicate=True)
    assert drain(queue) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("way", ["reopen", "kill"])
def test_a_producer_is_remembered(store: Store, way: str) -> None:
    store.queue().put_frame(frame(b"a", b"b"), partition=0)
    store.queue().put_frame(frame(b"c", sequence=2), partition=0)
    getattr(store, way)()
    queue = store.queue()
    again = queue.put_frame(frame(b"c", sequence=2), partition=0)
    assert (again.offset, again.duplicate) == (2, True)
    assert queue.put_frame(frame(b"d", sequence=3), partition=0).offset == 3
    assert drain(queue) == [b"a", b"b", b"c", b"d"]


def test_a_gap_is_refused(store: Store) -> None:
    queue = store.queue()
    queue.put_frame(frame(b"a"), partition=0)
    error = refused(store, lambda: queue.put_frame(frame(b"c", sequence=2), partition=0))
    assert isinstance(error, quivermq.Conflict)
    assert drain(queue) == [b"a"]


def test_an_older_epoch_is_refused_and_a_newer_one_begins_anew(store: Store) -> None:
    queue = store.queue()
    queue.put_frame(frame(b"a", epoch=1, sequence=5), partition=0)
    queue.put_frame(frame(b"b", epoch=2), partition=0)
    error = refused(store, lambda: queue.put_frame(frame(b"c", epoch=1, sequence=6), partition=0))
    assert isinstance(error, quivermq.Conflict)
    assert drain(queue) == [b"a", b"b"]


def test_producers_partitions_and_lanes_are_told_apart(store: Store) -> None:
    queue = store.queue(partitions=2)
    for producer in (7, 2**64 - 1):
        for partition in (0, 1):
            for priority in ("high", "low"):
                put = queue.put_frame(
                    frame(b"x", producer=producer), partition=partition, priority=priority
                )
                assert not put.duplicate
    assert len(drain(queue)) == 8


def test_a_producer_has_to_say_the_partition(store: Store) -> None:
    store.engine.create_topic("orders", partitions=2)
    error = refused(store, lambda: store.queue().put_frame(frame(b"x")))
    assert isinstance(error, quivermq.InvalidRequest)


@pytest.mark.parametrize("damage", ["cut", "more", "flipped"])
def test_a_damaged_frame_is_refused(store: Store, damage: str) -> None:
    whole = frame(b"some message", producer=0)
    bad = {"cut": whole[:-8], "more": whole + bytes(8), "flipped": whole[:-9] + b"?" + whole[-8:]}[damage]
    queue = store.queue()
    queue.put(b"first")
    assert isinstance(refused(store, lambda: queue.put_frame(bad)), quivermq.InvalidFrame)
    assert drain(queue) == [b"first"]


def test_a_frame_with_a_message_over_the_limit_is_refused(store: Store) -> None:
    queue = store.queue(message_bytes_max=100)
    queue.put(b"first")
    error = refused(store, lambda: queue.put_frame(frame(bytes(101), producer=0)))
    assert isinstance(error, quivermq.MessageTooLarge)


def test_a_full_backlog_refuses_frames(store: Store) -> None:
    queue = store.queue(backlog_messages_max=2)
    queue.put(b"first")
    error = refused(store, lambda: queue.put_frame(frame(b"a", b"b", producer=0)))
    assert isinstance(error, quivermq.Overloaded)
    queue.put_frame(frame(b"a", producer=0))


def test_the_ids_in_a_frame_count(store: Store) -> None:
    queue = store.queue()
    queue.put_frame(frame(b"a", producer=0, dedup_ids=["x"]))
    assert queue.put(b"b", dedup_id="x").duplicate


def test_the_ttl_of_a_topic_counts_for_frames(store: Store) -> None:
    queue = store.queue(ttl_ms=1000)
    queue.put_frame(frame(b"mortal", producer=0, expires_at=[store.clock.now_us() + 500_000]))
    store.clock.advance(0.5)
    assert queue.get() is None


@pytest.mark.parametrize("producer", [0, 7])
def test_the_topics_time_to_live_counts_for_frames_too(store: Store, producer: int) -> None:
    queue = store.queue(ttl_ms=10_000)
    now = store.clock.now_us()
    sent = frame(b"a", b"b", producer=producer, keys=[b"k", None], expires_at=[None, now + 60_000_000])
    queue.put_frame(sent, partition=0)
    queue.put_frame(frame(b"c", sequence=2, producer=producer), partition=0)
    assert [record.expires_at for record in queue.read()] == [
        now + 10_000_000,
        now + 60_000_000,
        now + 10_000_000,
    ]
    assert [record.key for record in queue.read()] == [b"k", None, None]
    # It is still known as what its producer sent.
    assert queue.put_frame(sent, partition=0).duplicate == bool(producer)
    store.pass_time(11)
    assert drain(queue) == [b"b"] * (1 if producer else 2)
