"""Frames made of Arrow buffers are those that the producer's encoder makes of the same messages."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.frame import Codec, Frame, Producer, encode
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.spark.sink.rows import encode_rows

NOW_US = 1_700_000_000_000_000
PRODUCER = Producer(2**64 - 1, 3, 17)

content = st.binary(max_size=20)
moment = st.integers(0, 2**50)
message = st.fixed_dictionaries(
    {
        "value": content,
        "key": st.none() | content,
        "headers": st.none() | st.dictionaries(st.text(max_size=5), content, max_size=3),
        "timestamp": moment,
        "expires_at": st.none() | moment,
    }
)


def rows(messages: list[dict[str, Any]]) -> pa.RecordBatch:
    pairs = [
        None if one["headers"] is None else [{"key": k, "value": v} for k, v in one["headers"].items()]
        for one in messages
    ]
    columns = {
        "value": pa.array([one["value"] for one in messages], pa.binary()),
        "key": pa.array([one["key"] for one in messages], pa.binary()),
        "headers": pa.array(pairs, HEADERS),
        "timestamp": pa.array([one["timestamp"] for one in messages], pa.int64()).view(TIME),
        "expires_at": pa.array([one["expires_at"] for one in messages], pa.int64()).view(TIME),
    }
    return pa.RecordBatch.from_pydict(columns)


def expected(messages: list[dict[str, Any]], codec: Codec = Codec.NONE) -> bytes:
    return bytes(
        encode(
            [one["value"] for one in messages],
            keys=[one["key"] for one in messages],
            headers=[one["headers"] for one in messages],
            timestamp=[one["timestamp"] for one in messages],
            expires_at=[one["expires_at"] for one in messages],
            codec=codec,
            producer=PRODUCER,
        )
    )


@given(st.lists(message, min_size=1, max_size=20), st.data())
def test_the_bytes_are_those_of_the_encoder(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    batch = rows(messages)
    assert bytes(encode_rows(batch, now_us=0, codec=Codec.NONE, producer=PRODUCER)) == expected(messages)
    start = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(start + 1, len(messages)))
    # Also of a part, whose buffers begin in the middle of others.
    made = encode_rows(batch.slice(start, end - start), now_us=0, codec=Codec.NONE, producer=PRODUCER)
    assert bytes(made) == expected(messages[start:end])
    Frame.parse(bytes(made)).validate()


@pytest.mark.parametrize("codec", list(Codec))
def test_a_codec_is_used(codec: Codec) -> None:
    messages = [
        {"value": b"x" * 100, "key": None, "headers": None, "timestamp": 5, "expires_at": None}
    ] * 50
    made = encode_rows(rows(messages), now_us=0, codec=codec, producer=PRODUCER)
    assert bytes(made) == expected(messages, codec)
    assert made.header.codec == codec


def test_a_value_alone_has_the_time_of_now() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"", b"ccc"], pa.binary())})
    made = encode_rows(batch, now_us=NOW_US, codec=Codec.NONE, producer=PRODUCER)
    assert bytes(made) == bytes(encode([b"a", b"", b"ccc"], timestamp=NOW_US, producer=PRODUCER))


def test_a_row_without_a_time_has_that_of_now() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"a", b"b"], pa.binary()),
            "timestamp": pa.array([None, 7], pa.int64()).view(TIME),
        }
    )
    made = encode_rows(batch, now_us=NOW_US, codec=Codec.NONE, producer=PRODUCER)
    assert [record.timestamp for record in made.records()] == [NOW_US, 7]
