"""The settings of a topic as JSON schema say what the engine says."""

import re
from typing import Any

import pytest

import quivermq
from quivermq.server.shapes import settings_schema

PROPERTIES = settings_schema(name={"type": "string"})["properties"]


def allows(schema: dict[str, Any], value: object) -> bool:
    """As much of JSON schema as these schemas use."""
    if "anyOf" in schema:
        return any(allows(one, value) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")]) and not isinstance(value, bool)
    kinds: dict[str, Any] = {
        "boolean": bool,
        "null": type(None),
        "string": str,
        "integer": int,
        "number": (int, float),
        "array": list,
        "object": dict,
    }
    kind = kinds[schema["type"]]
    if type(value) not in (kind if isinstance(kind, tuple) else (kind,)):
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        return bool(schema["minimum"] <= value <= schema["maximum"])
    if isinstance(value, str):
        return re.search(schema["pattern"], value) is not None
    if isinstance(value, list):
        return bool(len(value) == schema["minItems"]) and all(
            allows(schema["items"], item) for item in value
        )
    if isinstance(value, dict):
        return bool(value.keys() == schema["properties"].keys())
    return True


NUMBERS = [0, 1, -1, 7, 2**62, 2**63, 2**70, 1.5, True]
TEXTS = ["", "none", "true", "1", "64MiB", "1 KiB", "x", "fsync", "key", "reject", "zstd", "compact"]
# How settings are refused that only do not go with others, or come too late.
APART = ("must be at least", "it can only be set when the topic is created")
WEIGHTS = ["strict", "8:4:1", "8:4", [8, 4, 1], [8, 4], [0, 0, 0], {"high": 3, "normal": 2, "low": 1}]


@pytest.mark.parametrize("name", quivermq.TopicSettings().to_json())
@pytest.mark.parametrize("value", [*NUMBERS, *TEXTS, *WEIGHTS, None, [], {"high": 3}], ids=repr)
def test_the_schema_allows_what_the_engine_takes(name: str, value: object) -> None:
    try:
        quivermq.TopicSettings(segments_max=2**63 - 1, backoff_ms_max=10**15).changed({name: value})
        is_taken = True
    except quivermq.InvalidSettings as error:
        # Values that do not go together are more than a schema can tell.
        is_taken = any(words in error.reason for words in APART)
    assert allows(PROPERTIES[name], value) == is_taken


def test_other_properties_come_first() -> None:
    assert next(iter(PROPERTIES)) == "name"
