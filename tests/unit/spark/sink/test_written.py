"""What is written already is left out, message by message, in whatever order and frames it was."""

import random
from collections import Counter
from typing import Any

import pyarrow as pa

from quivermq.frame import Codec, Frame, Producer
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.spark.sink.rows import encode_rows
from quivermq.spark.sink.sending import WrittenRows

NOW_US = 1_700_000_000_000_000
TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": HEADERS,
    "partition": pa.int64(),
    "priority": pa.string(),
    "timestamp": TIME,
    "expires_at": TIME,
}


def rows(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(c, TYPES[name]) for name, c in columns.items()})


def stored(batch: pa.RecordBatch) -> Frame:
    names = [name for name in batch.schema.names if name not in ("partition", "priority")]
    made = encode_rows(batch.select(names), now_us=NOW_US, codec=Codec.NONE, producer=Producer(7))
    return Frame.parse(bytes(made.stamped(100, NOW_US)))


def written(batch: pa.RecordBatch, partition: int = 0, priority: str = "normal") -> WrittenRows:
    found = WrittenRows()
    found.add(stored(batch), partition, priority)
    return found


def test_what_is_there_is_left_out_as_often_as_it_is_there() -> None:
    rng = random.Random(1)
    whole = [b"%d" % rng.randrange(20) for _ in range(200)]
    first = rng.sample(whole, 90)
    found = written(rows(value=first))
    rng.shuffle(whole)
    left = [
        value
        for start in range(0, 200, 30)
        for value in found.subtract(rows(value=whole[start : start + 30])).column("value").to_pylist()
    ]
    assert Counter(left) + Counter(first) == Counter(whole)
    assert found.count == 0


def test_messages_differ_by_key_headers_and_priority() -> None:
    pairs = [[{"key": "a", "value": b"1"}], [{"key": "a1", "value": b""}], [], None]
    batch = rows(value=[b"x"] * 4, key=[b"k", None, b"", b"k"], headers=pairs)
    for index in range(4):
        found = written(batch.slice(index, 1))
        assert len(found.subtract(batch)) == 3
    assert len(written(batch, priority="high").subtract(batch)) == 4
    low = rows(value=[b"x"], priority=["low"])
    assert len(written(low, priority="low").subtract(low)) == 0


def test_a_time_that_is_given_counts_and_one_that_is_not_does_not() -> None:
    found = written(rows(value=[b"x", b"x"], timestamp=[5, 6]))
    assert (
        found.subtract(rows(value=[b"x", b"x", b"x"], timestamp=[6, 7, 8]))
        .to_pylist()[0]["timestamp"]
        .microsecond
        == 7
    )
    assert len(found.subtract(rows(value=[b"x"], timestamp=[None]))) == 0
    assert len(written(rows(value=[b"x"])).subtract(rows(value=[b"x"]))) == 0


def test_a_topic_with_a_time_to_live_gives_one_to_those_that_have_none() -> None:
    found = written(rows(value=[b"x", b"x"], expires_at=[NOW_US + 5, 9]))
    assert len(found.subtract(rows(value=[b"x", b"x"], expires_at=[9, None]))) == 0


def test_a_partition_that_is_asked_for_counts() -> None:
    found = written(rows(value=[b"x"]), partition=1)
    left = found.subtract(rows(value=[b"x", b"x", b"x"], partition=[0, 1, 2]))
    assert left.column("partition").to_pylist() == [0, 2]
    # The key of a row has another partition, since the topic was given more of them.
    assert len(written(rows(value=[b"x"], key=[b"k"]), 5).subtract(rows(value=[b"x"], key=[b"k"]))) == 0
