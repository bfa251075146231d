"""A task that writes to a broker: several attempts of it come to the same as one that succeeded."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.broker import Served, serving

import quivermq
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.spark.broker_place import BrokerPlace
from quivermq.spark.sink.attempt import Part
from quivermq.spark.sink.broker import write_to_broker
from quivermq.spark.sink.options import SinkOptions

PART = Part("query", 3, 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as served:
        yield served


def options(broker: Served, **rest: Any) -> SinkOptions:
    return SinkOptions(BrokerPlace(broker.url), **{"topic": "out", "batch_messages": 7, **rest})


def batch(values: list[bytes], **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def write(broker: Served, *batches: pa.RecordBatch, part: Part = PART, **rest: Any) -> int:
    return write_to_broker(iter(batches), part, options(broker, **rest))


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
        write(broker, batch([b"x"] * 7), part=Part("query", 0, task))
    assert Counter(message.partition for message in stored(broker)) == {0: 7, 1: 7, 2: 7}


def test_an_attempt_after_one_that_died_adds_what_is_missing(broker: Served) -> None:
    broker.engine.create_topic("out", partitions=2)
    values = some(100)
    with pytest.raises(RuntimeError, match="died"):
        write_to_broker(failing(batch(values[:40])), PART, options(broker))
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
            write_to_broker(
                failing(batch(values[:cut])), PART, options(broker, batch_messages=rng.randrange(1, 40))
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
        write_to_broker(slow(), PART, options(broker))
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
        write_to_broker(rows(), PART, write_options)
        assert contents(again[0]) == Counter(values)


def test_an_overloaded_topic_is_waited_for(broker: Served) -> None:
    broker.engine.create_topic("out", backlog_messages_max=10)
    queue = broker.engine.queue("out")
    taken: list[bytes] = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch([b"1"] * 10)
        yield batch([b"2"] * 5)

    thread = threading.Thread(target=write_to_broker, args=(rows(), PART, options(broker)))
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
        write_to_broker(failing(batch([b"x"] * 40)), PART, options(broker))
    broker.engine.compact()
    with pytest.raises(quivermq.NotFound, match="retention has removed"):
        write(broker, batch([b"x"] * 50))


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
            topic=pa.array(["one", None]),
            partition=pa.array([0, None], pa.int64()),
        ),
    )
    [first], [second] = stored(broker, "one"), stored(broker)
    assert (first.value, first.headers, first.priority) == (b"a", {"h": b"1"}, "high")
    assert (first.timestamp, first.expires_at) == (moment, None)
    assert (second.value, second.headers, second.priority) == (b"b", {}, "normal")
    assert (second.timestamp, second.expires_at) == (moment + 1, 2 * moment)
