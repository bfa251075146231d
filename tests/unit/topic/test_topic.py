"""A topic: the way of a message into one of its lanes."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.queues import START_US, Parts
from support.threads import PATIENCE_S, start

from quivermq.errors import Conflict, DiskFull, FsyncFailed, InvalidFrame, InvalidRequest, MessageTooLarge
from quivermq.frame import Frame, Producer, encode
from quivermq.model.messages import Message, Put, Record
from quivermq.model.topic_settings import TopicSettings
from quivermq.topic import splitting
from quivermq.topic.routing import murmur3
from quivermq.topic.topic import Topic


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.close()


def records(topic: Topic, partition: int = 0, priority: str = "normal") -> list[Record]:
    log = topic.lanes().get((partition, ["high", "normal", "low"].index(priority)))
    return [] if log is None else list(log.records())


def values(topic: Topic, partition: int = 0, priority: str = "normal") -> list[bytes]:
    return [record.value for record in records(topic, partition, priority)]


def frames(topic: Topic, partition: int = 0) -> list[int]:
    """How many messages each frame of a partition's normal lane holds."""
    return [len(frame) for frame in topic.partitions[partition].log(1).frames()]


def changed(topic: Topic, **settings: Any) -> TopicSettings:
    return topic.settings.changed(settings)


def test_a_put_says_where_the_message_is(parts: Parts) -> None:
    topic = parts.topic(partitions=2)
    assert topic.put(Message(b"a", priority="high", partition=1)) == Put("orders", 1, "high", 0)
    assert topic.put(Message(b"b", priority="high", partition=1)).offset == 1
    assert values(topic, 1, "high") == [b"a", b"b"]


def test_everything_of_a_message_is_stored(parts: Parts) -> None:
    topic = parts.topic()
    topic.put(Message(b"a", b"k", {"h": b"1"}, ttl=5, dedup_id="x", timestamp=7))
    topic.put_many([Message(b"b", b"k", {"h": b"1"}, ttl=5, dedup_id="y", timestamp=7), b"c"])
    one, two, three = records(topic)
    rest = {"key": b"k", "headers": {"h": b"1"}, "expires_at": START_US + 5_000_000, "timestamp": 7}
    for record, value, dedup_id in ((one, b"a", "x"), (two, b"b", "y")):
        assert (record.value, record.dedup_id) == (value, dedup_id)
        assert {name: getattr(record, name) for name in rest} == rest
    assert (three.value, three.key, three.headers, three.timestamp) == (b"c", None, {}, START_US)


def test_messages_of_a_key_are_in_one_partition_and_those_without_take_turns(parts: Parts) -> None:
    topic = parts.topic(partitions=3)
    for key in (b"k", b"other", b""):
        puts = [topic.put(Message(b"a", key)) for _ in range(3)]
        assert {put.partition for put in puts} == {murmur3(key) % 3}
    assert sorted(topic.put(Message(b"a", timestamp=1)).partition for _ in range(6)) == [0, 0, 1, 1, 2, 2]
    assert sorted(topic.put_many([b"a"])[0].partition for _ in range(6)) == [0, 0, 1, 1, 2, 2]


def test_plain_values_are_spread_over_the_partitions_and_each_is_where_its_put_says(parts: Parts) -> None:
    topic = parts.topic(partitions=3)
    topic.put_many([b"before"])
    given = [b"%d" % number for number in range(8)]
    puts = topic.put_many(list(given))
    found = [values(topic, put.partition)[put.offset or 0] for put in puts]
    assert found == given
    assert len({(put.partition, put.offset) for put in puts}) == 8
    assert {put.partition for put in puts} == {0, 1, 2}


def test_fewer_values_than_partitions(parts: Parts) -> None:
    topic = parts.topic(partitions=5)
    [one, two] = topic.put_many([b"a", b"b"])
    assert one.partition != two.partition
    assert values(topic, one.partition) == [b"a"]
    assert values(topic, two.partition) == [b"b"]


def test_messages_of_one_lane_are_one_frame(parts: Parts) -> None:
    topic = parts.topic()
    puts = topic.put_many([Message(b"a", b"k"), Message(b"b", priority="low"), b"c"])
    assert [(put.priority, put.offset) for put in puts] == [("normal", 0), ("low", 0), ("normal", 1)]
    assert frames(topic) == [2]


@pytest.mark.parametrize("key", [None, b"k"])
def test_a_batch_that_is_too_large_for_a_frame_is_split(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, key: bytes | None
) -> None:
    monkeypatch.setattr(splitting, "_MESSAGES", 3)
    monkeypatch.setattr(splitting, "_BYTES", 1100)
    topic = parts.topic()
    sizes = [1, 1, 1, 1, 900, 900]
    messages = [bytes(size) if key is None else Message(bytes(size), key) for size in sizes]
    puts = topic.put_many(messages)
    assert [put.offset for put in puts] == list(range(6))
    assert frames(topic) == [3, 2, 1]
    assert [len(value) for value in values(topic)] == sizes


def test_nothing_is_nothing(parts: Parts) -> None:
    topic = parts.topic()
    assert list(topic.put_many([])) == []


@pytest.mark.parametrize("wrong", ["text", Message(b"", partition=1), Message(b"", ttl=-1), bytes(1001)])
def test_all_are_checked_before_the_first_is_stored(parts: Parts, wrong: Any) -> None:
    topic = parts.topic(message_bytes_max=1000)
    for batch in ([b"a", wrong], [Message(b"a", b"k"), wrong], [Message(b"a", dedup_id="x"), wrong]):
        with pytest.raises(InvalidRequest):
            topic.put_many(batch)
    assert topic.lanes() == {}
    topic.put(Message(b"a", dedup_id="x"))


def test_a_durability_that_promises_nothing_is_refused(parts: Parts) -> None:
    topic = parts.topic()
    frame = topic.rules.parse(bytes(encode([b"a"], timestamp=1)))
    wrong: Any = "tomorrow"
    with pytest.raises(InvalidRequest, match="durability"):
        topic.put_many([b"a"], wrong)
    with pytest.raises(InvalidRequest, match="durability"):
        topic.put_many([b"a"], wrong)
    with pytest.raises(InvalidRequest, match="durability"):
        topic.put_frame(frame, durability=wrong)
    assert values(topic) == []


@pytest.mark.parametrize(
    "how", ["plain", "values", "message", "batch", "dedup", "delay", "frame", "producer"]
)
@pytest.mark.parametrize("is_said", ["by the topic", "by the call"])
def test_what_is_put_as_durable_survives_a_power_loss(parts: Parts, how: str, is_said: str) -> None:
    topic = parts.topic(durability="fsync" if is_said == "by the topic" else "os")
    word: Any = None if is_said == "by the topic" else "fsync"
    put_one(topic, how, word)
    after = parts.without_power()
    opened = after.topic()
    assert len(records(opened)) + opened.delays.pending == 1


@pytest.mark.parametrize(
    "how", ["plain", "values", "message", "batch", "dedup", "delay", "frame", "producer"]
)
def test_what_is_put_at_os_survives_a_kill_and_waits_for_no_sync(parts: Parts, how: str) -> None:
    topic = parts.topic()
    topic.dedup.prepare()
    put_one(topic, how)
    before = [step.operation for step in parts.disk.history].count("sync")
    put_one(topic, how, number=1)
    assert [step.operation for step in parts.disk.history].count("sync") == before
    opened = parts.killed().topic()
    assert len(records(opened)) + opened.delays.pending == 2


def put_one(topic: Topic, how: str, word: Any = None, number: int = 0) -> None:
    if how in ("plain", "values"):
        topic.put_many([b"a"], word)
    elif how == "message":
        topic.put(Message(b"a", b"k"), word)
    elif how == "batch":
        topic.put_many([Message(b"a", b"k")], word)
    elif how == "dedup":
        topic.put(Message(b"a", dedup_id=f"{number}"), word)
    elif how == "delay":
        topic.put(Message(b"a", delay=5), word)
    else:
        producer = Producer(7, 0, number) if how == "producer" else Producer()
        frame = topic.rules.parse(bytes(encode([b"a"], timestamp=1, producer=producer)))
        topic.put_frame(frame, partition=0, durability=word)


def test_the_topics_ttl_is_that_of_messages_without_one(parts: Parts) -> None:
    topic = parts.topic(ttl_ms=2000)
    topic.put_many([b"a"])
    topic.put_many([b"b", b"c"])
    topic.put(Message(b"d", ttl=9))
    assert [(r.expires_at or 0) - START_US for r in records(topic)] == [2_000_000] * 3 + [9_000_000]


def test_a_delayed_message_comes_later(parts: Parts) -> None:
    topic = parts.topic(partitions=2)
    put = topic.put(Message(b"a", b"k", delay=5, partition=1, priority="low"))
    assert (put.partition, put.priority, put.offset, put.duplicate) == (1, "low", None, False)
    assert [message.id for message in topic.delays.scheduled()] == [put.scheduled_id]
    assert topic.lanes() == {}
    topic.delays.release(START_US + 5_000_000)
    [record] = records(topic, 1, "low")
    assert (record.value, record.key, record.timestamp) == (b"a", b"k", START_US)


def test_delayed_and_other_messages_of_one_batch(parts: Parts) -> None:
    topic = parts.topic()
    puts = topic.put_many([Message(b"a", delay=5), Message(b"b"), Message(b"c", delay=3)])
    assert [put.offset for put in puts] == [None, 0, None]
    assert [put.scheduled_id is None for put in puts] == [False, True, False]
    assert values(topic) == [b"b"]
    assert [message.value for message in topic.delays.scheduled()] == [b"c", b"a"]


def test_a_repeated_id_is_answered_with_the_first_ones_place(parts: Parts) -> None:
    topic = parts.topic(partitions=3, dedup_window_ms=1000)
    first = topic.put(Message(b"a", priority="high", dedup_id="x"))
    again = topic.put(Message(b"b", b"key", dedup_id="x"))
    assert again == first._replace(duplicate=True)
    assert sum(log.end for log in topic.lanes().values()) == 1


def test_a_repeated_id_in_one_batch(parts: Parts) -> None:
    topic = parts.topic()
    topic.put(Message(b"0", dedup_id="x"))
    messages = [Message(b"%d" % n, dedup_id=id_) for n, id_ in enumerate(["a", "b", "a", None, "x", "b"])]
    puts = topic.put_many(messages)
    assert [(put.offset, put.duplicate) for put in puts] == [
        (1, False),
        (2, False),
        (1, True),
        (3, False),
        (0, True),
        (2, True),
    ]
    assert values(topic) == [b"0", b"0", b"1", b"3"]


def test_an_id_counts_for_the_window_only(parts: Parts) -> None:
    topic = parts.topic(dedup_window_ms=1000)
    topic.put(Message(b"a", dedup_id="x"))
    parts.wall.advance(1)
    assert topic.put(Message(b"a", dedup_id="x")).duplicate
    parts.wall.advance(0.001)
    assert topic.put(Message(b"a", dedup_id="x")) == Put("orders", 0, "normal", 1)


def test_without_a_window_no_id_is_remembered(parts: Parts) -> None:
    topic = parts.topic(dedup_window_ms=0)
    assert [topic.put(Message(b"a", dedup_id="x")).duplicate for _ in range(2)] == [False, False]


def test_a_repeated_id_of_a_delayed_message(parts: Parts) -> None:
    topic = parts.topic()
    first = topic.put(Message(b"a", dedup_id="x", delay=5))
    assert topic.put(Message(b"a", dedup_id="x")) == first._replace(duplicate=True)
    opened = parts.killed().topic()
    assert opened.put(Message(b"a", dedup_id="x")) == first._replace(duplicate=True)


def test_a_repeated_id_of_a_delayed_message_that_has_come(parts: Parts) -> None:
    topic = parts.topic()
    topic.put(Message(b"a", dedup_id="x", delay=5))
    parts.wall.advance(5)
    assert topic.release(parts.now) == 1
    assert topic.put(Message(b"a", dedup_id="x")) == Put("orders", 0, "normal", 0, duplicate=True)


def test_a_repetition_waits_until_what_it_repeats_is_durable(parts: Parts) -> None:
    topic = parts.topic(durability="os")
    topic.put(Message(b"a", dedup_id="x"))
    assert topic.put(Message(b"a", dedup_id="x"), "fsync").duplicate
    assert values(parts.without_power().topic()) == [b"a"]


def test_only_one_of_many_threads_puts_an_id(parts: Parts) -> None:
    topic = parts.topic()
    putting = [start(lambda: topic.put(Message(b"a", dedup_id="x"))) for _ in range(8)]
    puts = [put.result(PATIENCE_S) for put in putting]
    assert sorted(put.duplicate for put in puts) == [False] + [True] * 7
    assert values(topic) == [b"a"]


def test_a_full_disk_stores_nothing_and_a_retry_stores_it_once() -> None:
    failures = 0
    for room_bytes in range(0, 300, 40):
        parts = Parts()
        topic = parts.topic()
        topic.put(Message(b"a", dedup_id="a"))
        parts.disk.fill_after(room_bytes)
        stored = 2
        try:
            topic.put(Message(b"b", dedup_id="b"))
        except DiskFull:
            failures += 1
            stored = 1
        assert len(values(topic)) == stored
        parts.disk.fill_after(None)
        topic.put(Message(b"b", dedup_id="b"))
        assert values(topic) == [b"a", b"b"]
        parts.close()
    assert 0 < failures < 8


def test_a_failed_sync_is_told(parts: Parts) -> None:
    topic = parts.topic(durability="fsync")
    topic.put(Message(b"a", dedup_id="x"))
    parts.disk.fail_sync("*/normal/*")
    with pytest.raises(FsyncFailed):
        topic.put(Message(b"b", dedup_id="y"))


def frame(*given: bytes, producer: Producer | None = None) -> Frame:
    return encode(list(given), timestamp=START_US, producer=producer or Producer())


def test_a_frame_is_appended_as_it_is(parts: Parts) -> None:
    topic = parts.topic(partitions=2)
    topic.put(Message(b"before", partition=1, priority="low"))
    put = topic.put_frame(topic.rules.parse(bytes(frame(b"a", b"b"))), partition=1, priority="low")
    assert put == Put("orders", 1, "low", 1)
    assert values(topic, 1, "low") == [b"before", b"a", b"b"]


def test_a_frame_of_nobody_goes_to_each_partition_in_turn(parts: Parts) -> None:
    topic = parts.topic(partitions=2)
    assert sorted(topic.put_frame(frame(b"a")).partition for _ in range(4)) == [0, 0, 1, 1]
    assert not topic.put_frame(frame(b"a"), partition=0).duplicate


def test_a_frame_of_a_producer_says_its_partition(parts: Parts) -> None:
    topic = parts.topic(partitions=2)
    with pytest.raises(InvalidRequest, match="which partition"):
        topic.put_frame(frame(b"a", producer=Producer(7)))


def test_a_repeated_frame_is_answered_with_its_first_offset(parts: Parts) -> None:
    topic = parts.topic()
    topic.put_many([b"before"])
    sent = [frame(b"a", b"b", producer=Producer(7, 0, 0)), frame(b"c", producer=Producer(7, 0, 2))]
    assert [topic.put_frame(f, partition=0) for f in sent] == [
        Put("orders", 0, "normal", 1),
        Put("orders", 0, "normal", 3),
    ]
    assert [topic.put_frame(f, partition=0) for f in sent] == [
        Put("orders", 0, "normal", 1, duplicate=True),
        Put("orders", 0, "normal", 3, duplicate=True),
    ]
    with pytest.raises(Conflict):
        topic.put_frame(frame(b"e", producer=Producer(7, 0, 4)), partition=0)
    assert values(topic) == [b"before", b"a", b"b", b"c"]


def test_the_epoch_of_transfers_is_for_nobody_else(parts: Parts) -> None:
    topic = parts.topic()
    with pytest.raises(InvalidRequest):
        topic.put_frame(topic.rules.parse(bytes(frame(b"a", producer=Producer(7, 0xFFFF)))), partition=0)


@pytest.mark.parametrize(
    "wrong", [{"partition": 1}, {"partition": -1}, {"partition": "0"}, {"priority": "urgent"}]
)
def test_a_frame_for_nowhere_is_refused(parts: Parts, wrong: dict[str, Any]) -> None:
    topic = parts.topic()
    with pytest.raises(InvalidRequest):
        topic.put_frame(frame(b"a"), **wrong)
    assert topic.lanes() == {}


def test_bytes_that_are_no_frame_are_refused(parts: Parts) -> None:
    topic = parts.topic(message_bytes_max=1000)
    good = bytes(frame(b"a"))
    broken = bytearray(good)
    broken[-8] ^= 1
    for wrong in (b"", b"QVF1", good[:-1], good + b"\0", bytes(broken)):
        with pytest.raises(InvalidFrame):
            topic.rules.parse(wrong)
    with pytest.raises(MessageTooLarge):
        topic.rules.parse(bytes(frame(bytes(1001))))
    text: Any = "QVF1"
    with pytest.raises(InvalidRequest):
        topic.rules.parse(text)


def test_other_settings_hold_from_now_on(parts: Parts) -> None:
    topic = parts.topic(message_bytes_max=10)
    topic.put(Message(b"a", b"k"))
    topic.configure(changed(topic, message_bytes_max=20, partitions=3, segment_messages=1))
    topic.put(Message(bytes(20), partition=0))
    with pytest.raises(MessageTooLarge):
        topic.put(Message(bytes(21)))
    for _ in range(3):
        topic.put(Message(b"a", partition=0))
    assert values(topic) == [b"a", bytes(20), b"a", b"a", b"a"]
    topic.partitions[0].log(1).retain(finished=2)
    assert topic.partitions[0].log(1).start == 2
    assert {topic.put_many([b"a"])[0].partition for _ in range(3)} == {0, 1, 2}


def test_other_settings_hold_in_new_partitions(parts: Parts) -> None:
    topic = parts.topic(message_bytes_max=10)
    topic.configure(changed(topic, message_bytes_max=20, partitions=2))
    topic.put(Message(bytes(20), partition=1))
    assert values(topic, 1) == [bytes(20)]


def test_settings_that_do_not_fit_change_nothing(parts: Parts) -> None:
    topic = parts.topic()
    before = topic.settings
    with pytest.raises(InvalidRequest):
        topic.configure(changed(topic, message_bytes_max=10**9, partitions=2))
    assert (topic.settings, len(topic.partitions)) == (before, 1)


def test_dead_letters_may_be_larger_than_the_messages_that_they_were(parts: Parts) -> None:
    topic = parts.topic("orders.dlq", message_bytes_max=1000)
    log = topic.partitions[0].log(1)
    log.append(bytes(1000), headers={"quiver-dlq-error": bytes(20_000)})
    with pytest.raises(MessageTooLarge):
        topic.put(Message(bytes(1001)))


@pytest.mark.parametrize("window_ms", [0, 60_000])
def test_a_frame_of_messages_with_ids_keeps_all_that_they_have(parts: Parts, window_ms: int) -> None:
    topic = parts.topic(dedup_window_ms=window_ms)
    sent = encode(
        [b"a", b"b", b"c"],
        timestamp=[5, 6, 7],
        keys=[b"k", None, b"l"],
        headers=[{"h": b"1"}, None, {"é": b"2", "i": b""}],
        expires_at=[None, START_US * 2, None],
        dedup_ids=["x", None, "y"],
    )
    topic.put_frame(sent)
    assert [record[1:] for record in records(topic)] == [record[1:] for record in sent.records()]
    # Of those that are new, when some are not.
    again = encode([b"a", b"d"], timestamp=9, headers=[{"h": b"1"}, {"j": b"3"}], dedup_ids=["x", "z"])
    topic.put_frame(again)
    assert [(r.value, dict(r.headers)) for r in records(topic)][3:] == (
        [(b"d", {"j": b"3"})] if window_ms else [(b"a", {"h": b"1"}), (b"d", {"j": b"3"})]
    )
