"""The values of messages as typed columns."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from quivermq.disk import SystemDisk, read_file
from quivermq.errors import InvalidRequest, NotFound
from quivermq.spark.execution import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


_SCHEMA_BYTES_MAX = 1024 * 1024
# Spark reads the first value of a text and does not look at what is behind it. As a field of an object,
# with another one behind it, a text has to be one value and nothing else, and is still read only once.
# What gets through is a value with further fields behind it, as in `{"id": 1}, "more": 2`.
_VALUE, _END, _CORRUPT = "value", "end", "corrupt"
_BEFORE, _BEHIND = f'{{"{_VALUE}":', f',"{_END}":true}}'


def typed(
    frame: "DataFrame",
    schema: str | Mapping[str, Any] | Path,
    *,
    message: str = "message",
    malformed: str = "malformed",
) -> "DataFrame":
    """Messages whose values are JSON, with a column for each field of the schema.

    `schema` is Spark's DDL (`"id string, amount double"`), a JSON schema, or the path of a file that
    holds one. The columns of the message itself are in the struct `message`. No row is left out: where a
    value is not JSON, does not fit the types, or lacks what the schema requires, `malformed` holds its
    text, and is null elsewhere. Raises InvalidRequest for a schema that is wrong.
    """
    from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.
    from pyspark.sql.types import StructType

    columns = schema_columns(schema)
    with translated():
        fields = cast(StructType, StructType.fromDDL(columns.ddl))
    names = fields.fieldNames()
    for taken in {message, malformed} & set(names):
        raise InvalidRequest(
            f"the schema has a column {taken}, which is needed for something else: rename one"
        )
    text = F.col("value").cast("string")
    parsed = F.from_json(
        F.concat(F.lit(_BEFORE), text, F.lit(_BEHIND)),
        StructType().add(_VALUE, fields).add(_END, "boolean").add(_CORRUPT, "string"),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    others = F.struct(*(F.col(name) for name in frame.columns if name != "value"))
    rows = frame.select(others.alias("m"), text.alias("t"), parsed.alias("p"))
    value = F.col(f"p.{_VALUE}")
    is_wrong = value.isNull() | F.col(f"p.{_END}").isNull() | F.col(f"p.{_CORRUPT}").isNotNull()
    for name in columns.required:
        is_wrong |= value.getField(name).isNull()
    return rows.select(
        *(value.getField(name).alias(name) for name in names),
        F.col("m").alias(message),
        F.when(is_wrong, F.coalesce("t", F.lit(""))).alias(malformed),
    )


def schema_columns(schema: str | Mapping[str, Any] | Path) -> SchemaColumns:
    """The columns that a schema names. A text is DDL; one that ends with .json is the path of a file."""
    if isinstance(schema, Mapping):
        return columns_of(schema)
    if isinstance(schema, str) and not schema.endswith(".json"):
        return SchemaColumns(schema, ())
    try:
        document = json.loads(read_file(SystemDisk(), Path(schema), bytes_max=_SCHEMA_BYTES_MAX))
    except FileNotFoundError:
        raise NotFound(f"there is no file {schema}") from None
    except ValueError as error:
        raise InvalidRequest(f"{schema} is not JSON: {error}") from None
    if not isinstance(document, Mapping):
        raise InvalidRequest(f"{schema} is no JSON schema: it is not an object")
    return columns_of(document)
