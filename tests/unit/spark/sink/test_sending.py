"""A task that sends its rows to a broker: several attempts of it come to the same as one that succeeded."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import archive_queue
from support.broker import Served, serving

import quivermq
from quivermq.engine import engine_of
from quivermq.frame import Codec, stamp_of
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.frame.rewriting import rewritten
from quivermq.model.lanes import Lane
from quivermq.reading.batches import SCHEMA, record_batches
from quivermq.reading.broker import BrokerReader
from quivermq.spark.sink.options import SinkOptions, TaskPart
from quivermq.spark.sink.sending import send
from quivermq.topic import producers

PART = TaskPart("query", 3, 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as served:
        yield served


def options(broker: Served, **rest: Any) -> SinkOptions:
    return SinkOptions(BrokerReader(broker.url), **{"topic": "out", "batch_messages": 7, **rest})


def batch(values: list[bytes], **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def write(broker: Served, *batches: pa.RecordBatch, part: TaskPart = PART, **rest: Any) -> int:
    return send(iter(batches), part, options(broker, **rest))


def stored(broker: Served, topic: str = "out") -> list[quivermq.StoredMessage]:
    queue = broker.engine.queue(topic)
    return [
        message
        for partition in range(broker.engine.topic(topic).partitions)
        for priority in ("high", "normal", "low")
        for message in queue.read(partition, priority=priority, limit=10_000)
    ]


def contents(broker: Served) -> Counter[bytes]:
    return Counter(message.value for message in stored(broker))


def failing(*batches: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("the task died")


def some(count: int, seed: int = 1) -> list[bytes]:
    """Values of which some are the same."""
    rng = random.Random(seed)
    return [b"%d" % rng.randrange(count // 2) for _ in range(count)]


def test_a_body_that_the_topic_calls_small_is_not_compressed(broker: Served) -> None:
    broker.engine.create_topic("out", codec="zstd", compression_bytes_min=1000)
    write(broker, batch([b"x" * 100] * 7), batch([b"y" * 200] * 7), batch_messages=7)
    with closing(BrokerReader(broker.url)) as place:
        frames = list(place.frames(Lane("out", 0, "normal"), 0, 14))
    assert [(len(frame), frame.header.codec) for frame in frames] == [(7, Codec.NONE), (7, Codec.ZSTD)]


def test_everything_arrives_where_its_key_says(broker: Served) -> None:
    broker.engine.create_topic("out", partitions=3, codec="zstd")
    keys = [b"%d" % (n % 10) for n in range(50)]
    assert write(broker, batch([b"x%d" % n for n in range(50)], key=pa.array(keys, pa.binary()))) == 50
    broker.engine.create_topic("other", partitions=3)
    broker.engine.queue("other").put_many([quivermq.Message(b"", key=key) for key in set(keys)])
    where = {message.key: message.partition for message in stored(broker, "other")}
    found = stored(broker)
    assert len(found) == 50
    assert all(message.partition == where[message.key] for message in found)


def test_rows_without_a_key_are_spread(broker: Served) -> None:
    broker.engine.create_topic("out", partitions=3)
    for task in range(3):
        write(broker, batch([b"x"] * 7), part=TaskPart("query", 0, task))
    assert Counter(message.partition for message in stored(broker)) == {0: 7, 1: 7, 2: 7}


def test_an_attempt_after_one_that_died_adds_what_is_missing(broker: Served) -> None:
    broker.engine.create_topic("out", partitions=2)
    values = some(100)
    with pytest.raises(RuntimeError, match="died"):
        send(failing(batch(values[:40])), PART, options(broker))
    before = contents(broker)
    assert 0 < before.total() < 40
    random.Random(2).shuffle(values)
    write(broker, batch(values[:30]), batch(values[30:]), batch_messages=9)
    assert contents(broker) == Counter(values)
    # And one more, after an attempt whose success nobody heard of.
    write(broker, batch(values))
    assert contents(broker) == Counter(values)


def test_each_part_of_each_batch_of_each_query_is_its_own(broker: Served) -> None:
    for part in (PART, PART._replace(task=2), PART._replace(batch=4), PART._replace(write="other")):
        write(broker, batch([b"same"]), part=part)
    assert contents(broker) == {b"same": 4}


def test_many_attempts_each_die_somewhere(broker: Served) -> None:
    broker.engine.create_topic("out", partitions=3)
    rng = random.Random(3)
    values = some(300)
    for _ in range(12):
        rng.shuffle(values)
        cut = rng.randrange(300)
        with pytest.raises(RuntimeError, match="died"):
            send(
                failing(batch(values[:cut])),
                PART,
                options(broker, batch_messages=rng.randrange(1, 40)),
            )
    write(broker, batch(values))
    assert contents(broker) == Counter(values)


def test_a_twin_takes_over_and_the_first_one_writes_no_more(broker: Served) -> None:
    values = some(60)

    def slow() -> Iterator[pa.RecordBatch]:
        yield batch(values[:30])
        # Meanwhile a speculated attempt of the same task begins and succeeds.
        assert write(broker, batch(values[::-1])) == 60
        yield batch(values[30:])

    with pytest.raises(quivermq.Conflict, match="another attempt of this task"):
        send(slow(), PART, options(broker))
    assert contents(broker) == Counter(values)


def test_a_broker_that_is_started_anew_in_the_middle_makes_no_difference(tmp_path: Path) -> None:
    values = some(40)
    path = tmp_path / "restarted"
    with ExitStack() as first, ExitStack() as second:
        served = first.enter_context(serving(path))
        write_options = options(served)

        def rows() -> Iterator[pa.RecordBatch]:
            yield batch(values[:20])
            first.close()
            again.append(second.enter_context(serving(path, port=served.port)))
            yield batch(values[20:])

        again: list[Served] = []
        send(rows(), PART, write_options)
        assert contents(again[0]) == Counter(values)


def test_an_overloaded_topic_is_waited_for(broker: Served) -> None:
    broker.engine.create_topic("out", backlog_messages_max=10)
    queue = broker.engine.queue("out")
    taken: list[bytes] = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch([b"1"] * 10)
        yield batch([b"2"] * 5)

    thread = threading.Thread(target=send, args=(rows(), PART, options(broker)))
    thread.start()
    while len(taken) < 15:
        message = queue.get(timeout=30)
        assert message is not None
        taken.append(message.value)
        message.ack()
    thread.join(60)
    assert Counter(taken) == {b"1": 10, b"2": 5}


def test_a_message_that_is_too_large_is_refused_by_the_broker(broker: Served) -> None:
    broker.engine.create_topic("out", message_bytes_max=1000)
    with pytest.raises(quivermq.MessageTooLarge, match="message_bytes_max"):
        write(broker, batch([b"small", bytes(1001)]))


def test_retention_that_was_faster_is_told(broker: Served) -> None:
    broker.engine.create_topic("out", segment_messages=7, retention_messages=7)
    with pytest.raises(RuntimeError, match="died"):
        send(failing(batch([b"x"] * 40)), PART, options(broker))
    broker.engine.compact()
    with pytest.raises(quivermq.NotFound, match="retention has removed"):
        write(broker, batch([b"x"] * 50))


def test_what_is_only_in_the_archive_is_not_taken_for_nothing(broker: Served, tmp_path: Path) -> None:
    """It can be read, but it does not tell who sent it: so the rows would be written once more."""
    broker.engine.create_topic("out", segment_messages=1)
    # An attempt of whose success nobody heard.
    write(broker, batch([b"1", b"2", b"3"]), batch_messages=1)
    archive_queue(tmp_path / "data", tmp_path / "archive", "out")
    broker.engine.use_archive(str(tmp_path / "archive"))
    broker.engine.compact(archived=True)
    assert contents(broker) == {b"1": 1, b"2": 1, b"3": 1}
    with pytest.raises(quivermq.NotFound, match=r"retention has removed some of it, .* new checkpoint"):
        write(broker, batch([b"1", b"2", b"3"]))
    assert contents(broker) == {b"1": 1, b"2": 1, b"3": 1}


def keyed(*pairs: tuple[bytes, bytes]) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True)
    return batch([value * 50 for value in values], key=pa.array(keys, pa.binary()))


def compacted(broker: Served, *kept: int) -> None:
    """Take the other messages of the first segment out, as a compaction does."""
    log = engine_of(broker.engine).catalog.get("out").topic.partitions[0].logs[1]
    assert log is not None
    frames = [frame for frame in log.frames() if frame.header.end_offset <= log.segments[1].base_offset]
    made = rewritten(
        frames, lambda _, rows: pa.array([o in kept for o in rows.column("offset").to_pylist()])
    )
    expected = stamp_of(frame.header for frame in frames)
    broker.engine.replace_segment("out", 0, 0, b"".join(map(bytes, made)), expected=expected)


@pytest.fixture
def superseded(broker: Served) -> Served:
    """The topic after an attempt that wrote three messages, of which compaction took the first out."""
    broker.engine.create_topic("out", segment_messages=3, cleanup="compact")
    write(broker, keyed((b"k", b"old"), (b"l", b"x"), (b"k", b"new")))
    broker.engine.queue("out").put(b"another segment")
    compacted(broker, 1, 2)
    return broker


def test_what_compaction_took_is_not_written_again(superseded: Served) -> None:
    """The old value of the key would be its latest one."""
    before = stored(superseded)
    assert [message.value[:3] for message in before] == [b"xxx", b"new", b"ano"]
    write(superseded, keyed((b"k", b"new"), (b"k", b"old"), (b"l", b"x")))
    assert stored(superseded) == before


def test_where_compaction_took_something_and_something_is_missing_nobody_can_tell(
    superseded: Served,
) -> None:
    before = stored(superseded)
    with pytest.raises(quivermq.Conflict, match=r"compaction has taken 1 .* 2 rows .* new checkpoint"):
        write(superseded, keyed((b"k", b"old"), (b"l", b"x"), (b"k", b"new"), (b"m", b"y")))
    assert stored(superseded) == before


def test_a_repeated_task_that_was_forgotten_is_told(
    broker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PLACES_MAX", 20)
    first = options(broker, batch_messages=1)
    send(iter([batch([b"1", b"2"])]), PART, first)
    for task in range(100, 120):
        write(broker, batch([b"other"]), part=PART._replace(task=task))
    before = contents(broker)
    with pytest.raises(quivermq.NotFound, match=r"the topic has forgotten it, .* new checkpoint"):
        send(iter([batch([b"1", b"2"])]), PART, first, is_repeated=True)
    assert contents(broker) == before
    # One that was begun long after that goes on.
    later = replace(first, begun_us=first.begun_us + 3600 * 1_000_000)
    send(iter([batch([b"3"])]), PART._replace(task=2), later, is_repeated=True)
    assert contents(broker)[b"3"] == 1


def test_dead_letters_that_went_back_are_not_written_again(broker: Served) -> None:
    write(broker, batch([b"1", b"2", b"3"]), topic="in.dlq")
    broker.engine.queue("in").discard(lambda letter: letter.value == b"2")
    before = [message.value for message in stored(broker, "in.dlq")]
    assert before == [b"1", b"3"]
    with pytest.raises(quivermq.NotFound, match=r"taken out there, at offset 1, .* new checkpoint"):
        write(broker, batch([b"1", b"2", b"3"]), topic="in.dlq")
    assert [message.value for message in stored(broker, "in.dlq")] == before


def test_columns_reach_their_messages(broker: Served) -> None:
    moment = 1_700_000_000_000_000
    write(
        broker,
        batch(
            [b"a", b"b"],
            headers=pa.array([[{"key": "h", "value": b"1"}], None], HEADERS),
            priority=pa.array(["high", None]),
            timestamp=pa.array([moment, moment + 1], pa.int64()).view(TIME),
            expires_at=pa.array([None, 2 * moment], pa.int64()).view(TIME),
            topic=pa.array(["one", "out"]),
            partition=pa.array([0, None], pa.int64()),
        ),
        topic=None,
    )
    [first], [second] = stored(broker, "one"), stored(broker)
    assert (first.value, first.headers, first.priority) == (b"a", {"h": b"1"}, "high")
    assert (first.timestamp, first.expires_at) == (moment, None)
    assert (second.value, second.headers, second.priority) == (b"b", {}, "normal")
    assert (second.timestamp, second.expires_at) == (moment + 1, 2 * moment)


def test_the_option_says_the_topic_of_all_rows(broker: Served) -> None:
    write(broker, batch([b"a", b"b"], topic=pa.array(["one", None])))
    assert contents(broker) == {b"a": 1, b"b": 1}
    assert broker.engine.topics() == ["out"]


def test_messages_with_all_of_their_columns_go_to_another_topic(broker: Served) -> None:
    """As they were read: where they were before says nothing about where they go."""
    broker.engine.create_topic("in", partitions=4)
    queue = broker.engine.queue("in")
    for number in range(20):
        queue.put(
            b"%d" % number,
            key=b"%d" % (number % 5) if number % 3 else None,
            headers={"n": b"%d" % number} if number % 2 else None,
            priority="high" if number % 4 == 0 else "normal",
            ttl=3600 if number % 5 == 0 else None,
            partition=number % 4,
        )
    place = BrokerReader(broker.url)
    try:
        read = [
            rows
            for lane, bounds in place.lanes("in").items()
            for rows in record_batches(place, lane, bounds.start, bounds.end)
        ]
    finally:
        place.close()
    assert all(rows.schema.names == SCHEMA.names for rows in read)
    broker.engine.create_topic("out", partitions=2)
    assert write(broker, *read) == 20

    def told(topic: str) -> list[tuple[Any, ...]]:
        return sorted(
            (m.value, m.key or b"", m.headers, m.priority, m.timestamp, m.expires_at)
            for m in stored(broker, topic)
        )

    assert told("out") == told("in")
    # Each key is where the topic itself would have put it.
    broker.engine.create_topic("other", partitions=2)
    broker.engine.queue("other").put_many([quivermq.Message(b"", key=b"%d" % n) for n in range(5)])
    where = {message.key: message.partition for message in stored(broker, "other")}
    assert all(m.partition == where[m.key] for m in stored(broker) if m.key is not None)
