"""The options of a table, through its schema and back."""

import json
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import quivermq
from quivermq.errors import InvalidRequest
from quivermq.spark.datasource import QuiverDataSource, noted, recalled
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.readers import message_schema

GIVEN = {"data": "/a", "subscribe": "orders", "includeheaders": "false"}


def told(given: dict[str, str]) -> dict[str, str]:
    """What Spark tells of a table with these options."""
    return {**given, **{f"option.{name}": text for name, text in given.items()}} | {
        "provider": "quiver",
        "owner": "somebody",
    }


def stored(schema: StructType) -> StructType:
    """The schema as it comes out of a catalog."""
    return StructType.fromJson(json.loads(schema.json()))


def test_options_are_kept_in_the_schema() -> None:
    schema = stored(noted(message_schema(), SourceOptions(GIVEN)))
    assert schema.names == message_schema().names
    assert recalled(schema, SourceOptions({})) == SourceOptions(GIVEN)
    more = recalled(schema, SourceOptions({"subscribe": "other", "key": "k"}))
    assert more == SourceOptions({**GIVEN, "subscribe": "other", "key": "k"})
    # Whoever says where the queue is does not mean the table.
    elsewhere = SourceOptions({"path": "/b", "subscribe": "orders"})
    assert recalled(schema, elsewhere) == elsewhere
    assert recalled(message_schema(), SourceOptions({})) == SourceOptions({})


def test_a_key_is_not_kept() -> None:
    given = {"server": "http://h:1", "key": "secret"}
    assert "secret" not in noted(message_schema(), SourceOptions(given)).json()


def test_a_table_is_made_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with quivermq.open(path) as mq:
        mq.queue("orders").put_many([b"1", b"2"])
    schema = stored(QuiverDataSource(told({**GIVEN, "data": path})).schema())
    assert "headers" not in schema.names
    (task,) = QuiverDataSource({}).reader(schema).partitions()
    assert [(part.start, part.end) for part in task.value] == [(0, 2)]
    with pytest.raises(InvalidRequest, match="say where the queue is"):
        QuiverDataSource({}).reader(message_schema())
    with pytest.raises(InvalidRequest, match="say where the queue is"):
        QuiverDataSource(told({"subscribe": "orders"})).schema()


def test_an_ordinary_schema_has_no_notes() -> None:
    assert QuiverDataSource(GIVEN).schema() == message_schema(includes_headers=False)


def test_an_option_of_a_writer_is_named() -> None:
    source = QuiverDataSource({**GIVEN, "topic": "x"})
    for reader in (source.reader, source.streamReader):
        with pytest.raises(InvalidRequest, match="`topic` is for writing: to read, say `subscribe`"):
            reader(message_schema())
