from typing import Any

import pytest

from quivermq.errors import InvalidRequest
from quivermq.spark.jobs.typed import columns_of


def column(schema: dict[str, Any], **rest: Any) -> str:
    return columns_of({"properties": {"a": schema}, **rest}).ddl.removeprefix("`a` ")


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": ["integer", "null"]}, "bigint"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "object", "properties": {"b": {"type": "number"}}}, "struct<`b`: double>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string, bigint>"),
        ({"type": "object"}, "string"),
        ({"anyOf": [{"type": "string"}]}, "string"),
        ({"type": "null"}, "string"),
    ],
)
def test_each_kind_of_schema_becomes_a_type(schema: dict[str, Any], kind: str) -> None:
    assert column(schema) == kind


def test_a_reference_into_the_document_is_followed() -> None:
    money = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    assert column({"$ref": "#/$defs/money"}, **{"$defs": {"money": money}}) == "struct<`cents`: bigint>"


def test_names_are_quoted_and_what_is_required_is_told() -> None:
    schema = {"type": "object", "properties": {"a b": {}, "c`": {}}, "required": ["a b", "elsewhere"]}
    assert columns_of(schema) == ("`a b` string, `c``` string", ("a b",))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string"}, "describes an object"),
        ({"type": "object"}, "no properties"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "only #/… is followed"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "not in it"),
        ({"properties": {"a": {"$ref": "#"}}}, "contains itself"),
        ({"properties": {"a": {"$ref": "#/x"}}, "x": {"$ref": "#/x"}}, "in a circle"),
        ({"properties": {"a": {"$ref": "#/x"}}, "x": 1}, "no schema"),
    ],
)
def test_what_is_no_schema_for_messages_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        columns_of(schema)
