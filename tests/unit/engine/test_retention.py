"""Retention: what goes, what a group keeps, and what compact tells."""

from typing import Any

import pytest
from unit.engine.store import DATA, Store, drain, values

import quivermq


def fill(queue: quivermq.Queue, count: int = 10) -> None:
    for n in range(count):
        queue.put(b"%d" % n)


def offsets(queue: quivermq.Queue) -> list[int]:
    return [record.offset for record in queue.read(limit=1000)]


def log_bytes(store: Store) -> int:
    return sum(
        len(data) for path, data in store.files().items() if path.suffix == ".log" and "topics" in str(path)
    )


def test_compact_frees_what_is_finished_and_tells(store: Store) -> None:
    queue = store.queue(segment_messages=2, delete_finished=True)
    fill(queue)
    drain(queue)
    before = log_bytes(store)
    compacted = store.engine.compact()
    assert compacted.segments >= 4
    assert compacted.messages >= 8
    assert compacted.bytes >= before - log_bytes(store) > 0
    assert len(offsets(queue)) == 10 - compacted.messages
    again = store.engine.compact()
    assert (again.segments, again.messages) == (0, 0)
    queue.put(b"next")
    assert drain(queue) == [b"next"]
    assert queue.read(limit=1000)[-1].offset == 10


def test_without_delete_finished_everything_stays(store: Store) -> None:
    queue = store.queue(segment_messages=2)
    fill(queue)
    drain(queue)
    assert store.engine.compact().messages == 0
    assert offsets(queue) == list(range(10))


def test_every_group_has_to_be_finished(store: Store) -> None:
    queue = store.queue(segment_messages=1, delete_finished=True)
    slow = store.queue(group="slow")
    slow.get()
    fill(queue)
    drain(queue)
    slow.ack(slow.get_many(3))
    assert store.engine.compact().messages == 3
    assert offsets(queue)[0] == 3
    store.engine.delete_group("orders", "slow")
    assert store.engine.compact().messages >= 6


def test_an_unacked_message_keeps_its_segment_and_those_behind(store: Store) -> None:
    queue = store.queue(segment_messages=1, delete_finished=True)
    fill(queue)
    messages = queue.get_many(10)
    queue.ack(messages[:4] + messages[5:])
    store.engine.compact()
    assert offsets(queue)[0] == 4
    store.pass_time(31)
    assert drain(queue) == [b"4"]


def test_without_a_group_nothing_is_finished(store: Store) -> None:
    queue = store.queue(segment_messages=1, delete_finished=True)
    fill(queue)
    assert store.engine.compact().messages == 0


LIMITS: dict[str, Any] = {
    "retention_messages": 3,
    "retention_bytes": 400,
    "segments_max": 3,
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_take_the_oldest_when_nobody_needs_them(store: Store, name: str) -> None:
    queue = store.queue(segment_messages=1, **{name: LIMITS[name]})
    fill(queue)
    compacted = store.engine.compact()
    left = offsets(queue)
    assert 1 <= len(left) <= 4
    assert left == list(range(10 - len(left), 10))
    assert compacted.messages == compacted.segments == 10 - len(left)
    assert drain(queue) == [b"%d" % n for n in left]


@pytest.mark.parametrize("name", LIMITS)
def test_limits_keep_what_a_group_has_not_finished(store: Store, name: str) -> None:
    queue = store.queue(segment_messages=1, **{name: LIMITS[name]})
    queue.get()
    fill(queue)
    messages = queue.get_many(10)
    assert store.engine.compact().messages == 0
    queue.ack(messages[:2])
    messages[2].nack(delay=5)
    assert store.engine.compact().messages == 2
    assert offsets(queue)[0] == 2
    queue.ack(messages[3:])
    store.pass_time(5)
    assert drain(queue) == [b"2"]
    store.engine.compact()
    assert len(offsets(queue)) <= 4


@pytest.mark.parametrize("name", LIMITS)
def test_force_takes_what_a_group_has_not_finished(store: Store, name: str) -> None:
    queue = store.queue(segment_messages=1, retention_force=True, **{name: LIMITS[name]})
    fill(queue)
    in_flight = queue.get_many(3)
    assert store.engine.compact().messages >= 6
    left = offsets(queue)
    # What was read ahead may still come.
    assert drain(queue)[-len(left) :] == [b"%d" % n for n in left]
    in_flight[0].ack()
    in_flight[1].nack(delay=0)
    store.pass_time(100)
    assert queue.get() is None
    assert queue.stats().backlog == 0


def test_force_while_messages_were_read_ahead(store: Store) -> None:
    queue = store.queue(segment_messages=5, retention_messages=5, retention_force=True)
    queue.put_many([b"%d" % n for n in range(5)])
    first = queue.get()
    assert first is not None
    queue.put_many([b"%d" % n for n in range(5, 10)])
    queue.put(b"10")
    store.engine.compact()
    start = offsets(queue)[0]
    assert all(int(value) >= start or int(value) < 5 for value in drain(queue))


def test_age(store: Store) -> None:
    queue = store.queue(segment_messages=1, retention_ms=10_000)
    fill(queue, 3)
    store.clock.advance(8)
    fill(queue, 3)
    store.clock.advance(3)
    assert store.engine.compact().messages == 3
    assert offsets(queue) == [3, 4, 5]


def test_age_keeps_what_a_group_has_not_finished(store: Store) -> None:
    queue = store.queue(segment_messages=1, retention_ms=10_000)
    queue.get()
    fill(queue, 3)
    store.clock.advance(100)
    assert store.engine.compact().messages == 0
    store.engine.alter_topic("orders", retention_force=True)
    assert store.engine.compact().messages >= 2


def test_segments_min_stay(store: Store) -> None:
    queue = store.queue(segment_messages=1, retention_messages=1, segments_min=4)
    fill(queue)
    store.engine.compact()
    assert offsets(queue) == [6, 7, 8, 9]


def test_segments_roll_by_messages_bytes_and_age(store: Store) -> None:
    def segments(topic: str) -> int:
        names = store.disk.names(DATA / "topics" / topic / "p0" / "normal")
        return sum(name.endswith(".log") for name in names)

    by_messages = store.queue("messages", segment_messages=3)
    by_bytes = store.queue("bytes", segment_bytes=1000)
    by_age = store.queue("age", segment_ms=5000)
    for _ in range(9):
        by_messages.put(b"x")
        by_bytes.put(bytes(220))
        by_age.put(b"x")
        store.clock.advance(1)
    assert segments("messages") == 3
    assert segments("bytes") == 3
    assert segments("age") == 2
    store.engine.alter_topic("messages", segment_messages=1)
    by_messages.put(b"x")
    by_messages.put(b"x")
    assert segments("messages") == 5


def test_the_background_does_it(store: Store) -> None:
    queue = store.queue(segment_messages=1, delete_finished=True)
    fill(queue)
    drain(queue)
    store.pass_time(29)
    assert len(offsets(queue)) == 10
    store.pass_time(2)
    assert len(offsets(queue)) <= 1


def test_retention_looks_at_every_lane_and_partition(store: Store) -> None:
    queue = store.queue(partitions=2, segment_messages=1, delete_finished=True)
    for partition in range(2):
        for priority in ("high", "normal", "low"):
            for _ in range(3):
                queue.put(b"x", partition=partition, priority=priority)
    drain(queue)
    assert store.engine.compact().messages >= 12


def test_a_new_group_begins_with_what_is_left(store: Store) -> None:
    queue = store.queue(segment_messages=1, retention_messages=2)
    fill(queue)
    store.engine.compact()
    late = store.queue(group="late")
    assert late.stats().pending == len(offsets(queue))
    first = late.get()
    assert first is not None
    assert first.offset == offsets(queue)[0]
    assert late.stats().backlog == len(offsets(queue))
    late.seek("earliest")
    assert drain(late) == values(queue.read())


def test_compact_shortens_the_journals(store: Store) -> None:
    queue = store.queue()
    fill(queue, 200)
    for _ in range(200):
        message = queue.get()
        assert message is not None
        message.ack()

    def journal_bytes() -> int:
        files = store.files().items()
        return sum(len(data) for path, data in files if "groups" in path.parts and path.suffix == ".log")

    before = journal_bytes()
    compacted = store.engine.compact()
    assert journal_bytes() < before
    assert compacted.bytes >= before - journal_bytes()
    store.kill()
    assert store.queue().get() is None


def test_dead_letters_of_removed_messages_stay(store: Store) -> None:
    queue = store.queue(segment_messages=1, delete_finished=True)
    fill(queue)
    queue.reject(queue.get_many(10))
    store.engine.compact()
    assert len(queue.dead_letters()) == 10
    assert queue.redrive() == 10
    assert len(drain(queue)) == 10


def test_redriven_dead_letters_make_room(store: Store) -> None:
    queue = store.queue()
    store.engine.create_topic("orders.dlq", segment_messages=1)
    fill(queue)
    for message in queue.get_many(10):
        message.reject()
    queue.redrive()
    assert store.engine.compact().messages >= 9


def test_compacting_nothing(store: Store) -> None:
    assert store.engine.compact() == quivermq.Compacted(0, 0, 0)


def test_no_default_of_the_storage_takes_dead_letters(store: Store) -> None:
    limits = quivermq.StorageSettings(
        segment_messages=1, retention_ms=1, retention_bytes=1, retention_messages=1, segments_max=1
    )
    store._settings = quivermq.Settings(storage=limits)
    store.reopen()
    queue = store.queue()
    fill(queue)
    queue.reject(queue.get_many(10))
    store.pass_time(3600)
    store.engine.compact()
    assert len(queue.dead_letters()) == 10
    store.engine.alter_topic("orders", dead_letter_retention_ms=60_000)
    store.pass_time(3600)
    store.engine.compact()
    assert queue.dead_letters() == []
