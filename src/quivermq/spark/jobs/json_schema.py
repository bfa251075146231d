"""A JSON schema as a type of Spark, so that the values of a topic can be columns.

Spark's types know less than a JSON schema: limits, patterns and enumerations are not checked. Where a
schema leaves open what a value is, the column holds its JSON as text, and nothing is lost.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from quivermq.errors import InvalidRequest

_TYPES = {"integer": "bigint", "number": "double", "boolean": "boolean", "string": "string"}
_FORMATS = {"date-time": "timestamp", "date": "date"}
_DEPTH_MAX = 32
_ANYTHING = "string"


class SchemaColumns(NamedTuple):
    """The columns of a schema as Spark's DDL, and those that have to be there."""

    ddl: str
    required: tuple[str, ...]


def columns_of(schema: Mapping[str, Any]) -> SchemaColumns:
    """The columns of messages that are objects of this schema. Raises InvalidRequest."""
    resolved = _resolved(schema, schema)
    if _types(resolved) != {"object"}:
        raise InvalidRequest("a schema for messages describes an object, with properties")
    properties = resolved.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise InvalidRequest("the schema has no properties: there would be no columns")
    fields = (f"{_name(name)} {_type(part, schema, 1)}" for name, part in properties.items())
    required = tuple(name for name in resolved.get("required", ()) if name in properties)
    return SchemaColumns(", ".join(fields), required)


def _type(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    if depth > _DEPTH_MAX:
        raise InvalidRequest(f"the schema is nested more than {_DEPTH_MAX} times, or contains itself")
    if not isinstance(schema, Mapping):
        return _ANYTHING
    schema = _resolved(schema, root)
    types = _types(schema)
    if len(types) != 1:
        return "double" if types == {"integer", "number"} else _ANYTHING
    [kind] = types
    match kind:
        case "object":
            return _object(schema, root, depth)
        case "array":
            return f"array<{_type(schema.get('items'), root, depth + 1)}>"
        case "string":
            return _FORMATS.get(schema.get("format", ""), "string")
    return _TYPES.get(kind, _ANYTHING)


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        fields = (f"{_name(name)}: {_type(part, root, depth + 1)}" for name, part in properties.items())
        return f"struct<{', '.join(fields)}>"
    further = schema.get("additionalProperties")
    if isinstance(further, Mapping):
        return f"map<string, {_type(further, root, depth + 1)}>"
    return _ANYTHING


def _types(schema: Mapping[str, Any]) -> set[str]:
    given = schema.get("type", "object" if "properties" in schema else ())
    return ({given} if isinstance(given, str) else set(given)) - {"null"}


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference into the same document leads to."""
    for _ in range(_DEPTH_MAX):
        reference = schema.get("$ref")
        if reference is None:
            return schema
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise InvalidRequest(f"the schema refers to {reference!r:.80}: only #/… is followed")
        found: Any = root
        for part in filter(None, reference.removeprefix("#").split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise InvalidRequest(f"the schema refers to {reference!r:.80}, which is not in it")
            found = found[name]
        if not isinstance(found, Mapping):
            raise InvalidRequest(f"the schema refers to {reference!r:.80}, which is no schema")
        schema = found
    raise InvalidRequest("the references of the schema go round in a circle")


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
