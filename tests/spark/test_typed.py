import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quivermq.errors import InvalidRequest, NotFound
from quivermq.spark import typed

VALUES = [
    b'{"id": 1, "amount": 2.5}',
    b'{"id": 2}',
    b'{"id": "three"}',
    b'{"id": 4, "amount": 1.0',
    b"not json",
    b"",
    b"null",
    b"[]",
    b"\xff\xfe",
    b'{"amount": 9}',
    b'{"id": 5, "more": {"a": [1]}}',
    b'{"id": 6} and more',
    b'{"id": 7}\n{"id": 8}',
    b'{"id": 9}}',
    b' {"id": 10, "end": 1, "value": {}, "corrupt": "x"}\n',
]


def rows(spark: SparkSession, schema: Any) -> dict[bytes, Any]:
    frame = spark.createDataFrame(
        [(b"k", value, n) for n, value in enumerate(VALUES)], "key binary, value binary, offset long"
    )
    made = typed(frame, schema)
    assert made.count() == len(VALUES)
    return {VALUES[row.message.offset]: row for row in made.collect()}


def test_every_row_is_there_and_what_does_not_fit_is_told(spark: SparkSession) -> None:
    found = rows(spark, "id bigint, amount double")
    good = found[VALUES[0]]
    assert (good.id, good.amount, good.malformed, bytes(good.message.key)) == (1, 2.5, None, b"k")
    assert (found[VALUES[1]].id, found[VALUES[1]].amount, found[VALUES[1]].malformed) == (2, None, None)
    assert found[VALUES[10]].malformed is None
    bad = [value for value, row in found.items() if row.malformed is not None]
    assert bad == [VALUES[n] for n in (2, 3, 4, 5, 6, 7, 8, 11, 12, 13)]
    assert found[VALUES[14]].id == 10
    assert found[VALUES[12]].malformed == VALUES[12].decode()
    assert found[b"not json"].malformed == "not json"


def test_a_schema_may_require_fields(spark: SparkSession, tmp_path: Path) -> None:
    schema = {"properties": {"id": {"type": "integer"}, "more": {"type": "object"}}, "required": ["id"]}
    (tmp_path / "s.json").write_text(json.dumps(schema))
    found = rows(spark, str(tmp_path / "s.json"))
    assert found[b'{"amount": 9}'].malformed == '{"amount": 9}'
    assert found[VALUES[10]].more == '{"a":[1]}'
    assert found[VALUES[0]].malformed is None


def test_a_schema_that_is_wrong_is_told(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(b"x",)], "value binary")
    with pytest.raises(InvalidRequest):
        typed(frame, "id nonsense")
    with pytest.raises(InvalidRequest, match="needed for something else"):
        typed(frame, "message string")
    with pytest.raises(NotFound, match="there is no file"):
        typed(frame, tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InvalidRequest, match="is not JSON"):
        typed(frame, tmp_path / "bad.json")
