"""What the shapes of requests and answers have in common. Each lies beside the calls that use it.

The OpenAPI document is made from them. `schema_extra` is merged into the schema of its type: it has
examples, and what types cannot say. The settings of a topic come from the place where they are declared.
"""

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from quivermq.frame import OFFSET_MAX
from quivermq.model.stats import GroupState
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings.setting import (
    DecimalSetting,
    FlagSetting,
    Setting,
    TextSetting,
    WeightsSetting,
    settings_of,
)

Count = Annotated[int, Meta(ge=0)]
Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]

_NAME_PATTERN = "^[.]*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
NAME_SCHEMA: dict[str, Any] = {"type": "string", "pattern": _NAME_PATTERN, "maxLength": 249}

_GIVEN: dict[str, Any] = {"not": {"type": "null"}}


def exactly_one(*names: str) -> dict[str, Any]:
    """One of these fields is there, and not null."""
    return {"oneOf": [_given(name) for name in names]}


def at_most_one(*names: str) -> dict[str, Any]:
    """Not all of these fields are there at once."""
    return {"not": _given(*names)}


def _given(*names: str) -> dict[str, Any]:
    return {"required": list(names), "properties": dict.fromkeys(names, _GIVEN)}


def settings_schema(**others: dict[str, Any]) -> dict[str, Any]:
    """An object that has these properties, and every setting of a topic."""
    settings = settings_of(TopicSettings).values()
    return {
        "type": "object",
        "properties": {**others, **{setting.name: _schema(setting) for setting in settings}},
        "additionalProperties": False,
    }


def _schema(setting: Setting) -> dict[str, Any]:
    return {"anyOf": _allowed(setting), "description": setting.doc}


def _allowed(setting: Setting) -> list[dict[str, Any]]:
    """What JSON may hold. What the command line writes as text is understood here as well."""
    bounds = {"minimum": setting.lowest, "maximum": setting.highest}
    if isinstance(setting, FlagSetting):
        return [{"type": "boolean"}, {"enum": ["true", "false"]}]
    if isinstance(setting, TextSetting):
        return [{"type": "string", "pattern": f"^{setting.pattern}$"}]
    if isinstance(setting, DecimalSetting):
        return [
            {"type": "number", **bounds},
            {"type": "string", "pattern": r"^[0-9]{1,12}(\.[0-9]{1,12})?$"},
        ]
    if isinstance(setting, WeightsSetting):
        weight = {"type": "integer", **bounds}
        count = len(setting.parts)
        return [
            {"const": "strict"},
            {"type": "string", "pattern": "^[0-9]{1,4}" + ":[0-9]{1,4}" * (count - 1) + "$"},
            {"type": "array", "items": weight, "minItems": count, "maxItems": count},
            {
                "type": "object",
                "properties": dict.fromkeys(setting.parts, weight),
                "required": list(setting.parts),
                "additionalProperties": False,
            },
        ]
    if setting.choices:
        return [{"enum": list(setting.choices)}]
    units = "|".join(unit for unit in setting.units if unit)
    unit = f"( ?({units}))?" if units else ""
    allowed: list[dict[str, Any]] = [
        {"type": "integer", **bounds},
        {"type": "string", "pattern": f"^[0-9]{{1,19}}{unit}$"},
    ]
    return [*allowed, {"type": "null"}, {"const": "none"}] if setting.optional else allowed


class ErrorDetail(msgspec.Struct):
    """What went wrong. Some errors have more fields, such as `start` and `end` of the log."""

    schema_extra: ClassVar[dict[str, Any]] = {"additionalProperties": True}

    code: str
    message: str
    retryable: bool


class Error(msgspec.Struct):
    """An error."""

    schema_extra: ClassVar[dict[str, Any]] = {
        "examples": [
            {
                "error": {
                    "code": "topic_not_found",
                    "message": "there is no topic orders: topics() lists those there are",
                    "retryable": False,
                }
            }
        ]
    }

    error: ErrorDetail


class GroupFigures(msgspec.Struct):
    """How far a group has come with a topic."""

    topic: str
    group: str
    pending: Count
    in_flight: Count
    retrying: Count
    waiting_for_key: Count
    delayed: Count
    dead_letters: Count
    state: GroupState
    backlog: Count
