"""The settings of a topic as JSON schema, from the place where they are declared."""

from typing import Any

from quivermq.settings.setting import (
    DecimalSetting,
    FlagSetting,
    Setting,
    TextSetting,
    WeightsSetting,
    settings_of,
)
from quivermq.topic.settings import TopicSettings


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
