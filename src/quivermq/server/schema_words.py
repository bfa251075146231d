"""What types cannot say about the fields of a struct, as JSON schema, for its `schema_extra`."""

from typing import Any

_GIVEN: dict[str, Any] = {"not": {"type": "null"}}


def exactly_one(*names: str) -> dict[str, Any]:
    """One of these fields is there, and not null."""
    return {"oneOf": [_given(name) for name in names]}


def at_most_one(*names: str) -> dict[str, Any]:
    """Not all of these fields are there at once."""
    return {"not": _given(*names)}


def needs(name: str, other: str) -> dict[str, Any]:
    """Where the one field is, the other one is, too."""
    return {"if": _given(name), "then": _given(other)}


def _given(*names: str) -> dict[str, Any]:
    return {"required": list(names), "properties": dict.fromkeys(names, _GIVEN)}
