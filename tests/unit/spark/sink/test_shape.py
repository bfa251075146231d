"""Which DataFrames can be written, and what the others are told."""

import pyarrow as pa
import pytest

from quivermq.errors import InvalidRequest
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.spark.sink.rows import check_columns, rows_of

PAIRS = "array<struct<key:string,value:binary>>"
WHOLE = {
    "value": "binary",
    "key": "string",
    "headers": PAIRS,
    "topic": "string",
    "partition": "int",
    "priority": "string",
    "timestamp": "timestamp",
    "expires_at": "timestamp",
}


def test_all_columns_together_and_a_value_alone() -> None:
    check_columns(WHOLE, has_topic=False)
    check_columns({"value": "string"}, has_topic=True)
    check_columns({**WHOLE, "headers": "array<struct<value:string,key:string>>"}, has_topic=False)


WRONG: list[tuple[dict[str, str], str]] = [
    ({"value": "string", "colour": "int", "size": "int"}, r'colour, size .*\.drop\("colour", "size"\)'),
    ({"key": "string"}, "no column value"),
    ({"value": "int"}, "value is binary or string, not int"),
    ({"value": "string", "key": "bigint"}, "key is binary or string, not bigint"),
    ({"value": "string", "headers": "map<string,binary>"}, "headers are array"),
    ({"value": "string", "headers": "array<struct<key:string>>"}, "headers are array"),
    ({"value": "string", "timestamp": "bigint"}, "timestamp is timestamp, not bigint"),
    ({"value": "string", "partition": "string"}, "partition is int or bigint, not string"),
]


@pytest.mark.parametrize(("types", "words"), WRONG)
def test_what_cannot_be_written_is_told(types: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        check_columns(types, has_topic=True)


def test_what_was_read_may_be_written_elsewhere() -> None:
    check_columns({"value": "string", "offset": "bigint", "partition": "int"}, has_topic=True)
    read = pa.RecordBatch.from_pydict({"value": [b"a"], "partition": [7], "offset": [9]})
    assert rows_of(read).to_pydict() == {"value": [b"a"]}


def test_without_a_topic_nothing_is_written() -> None:
    with pytest.raises(InvalidRequest, match="which topic to write to"):
        check_columns({"value": "string"}, has_topic=False)


def test_rows_get_the_types_of_messages() -> None:
    given = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["a", "ä"], pa.large_string()),
            "key": pa.array([None, "k"]),
            "partition": pa.array([1, None], pa.int32()),
            "timestamp": pa.array([5, None], pa.timestamp("us", "Europe/Berlin")),
            "headers": pa.array(
                [None, [{"value": "1", "key": "a"}, {"value": "", "key": ""}]],
                pa.list_(pa.struct([("value", pa.string()), ("key", pa.string())])),
            ),
        }
    )
    rows = rows_of(given)
    types = [pa.binary(), pa.binary(), pa.int64(), TIME, HEADERS]
    assert rows.schema.types == types
    assert rows.column("value").to_pylist() == [b"a", "ä".encode()]
    assert rows.column("headers").to_pylist()[1] == [
        {"key": "a", "value": b"1"},
        {"key": "", "value": b""},
    ]
    assert rows_of(given.slice(1)).column("headers").to_pylist() == rows.column("headers").to_pylist()[1:]


def test_nulls_where_a_message_needs_something_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="a value is null"):
        rows_of(pa.RecordBatch.from_pydict({"value": pa.array(["a", None])}))
    broken = pa.array([[{"key": None, "value": b"1"}]], HEADERS)
    with pytest.raises(InvalidRequest, match="a header has a name and a value"):
        rows_of(pa.RecordBatch.from_pydict({"value": pa.array(["a"]), "headers": broken}))
