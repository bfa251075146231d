"""What the shapes of requests and answers have in common. Each lies beside the calls that use it.

The OpenAPI document is made from them. `schema_extra` is merged into the schema of its type: it has
examples, and what types cannot say. The settings of a topic come from the place where they are declared.
"""

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quivermq.frame import OFFSET_MAX
from quivermq.model.json import no_value, not_both
from quivermq.model.lanes import PRIORITIES, Priority
from quivermq.model.messages import Message
from quivermq.model.stats import GroupState
from quivermq.model.topic_settings import PARTITIONS_MAX, TopicSettings
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
PartitionNumber = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX - 1)]
# How long a lease, a wait or a delay of a retry may be.
WAIT_MS_MAX = 365 * 24 * 3600 * 1000

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


# Messages, both ways. `quivermq.model.json` makes what goes out.

# The same on its way out, where nobody has to check it.
PriorityOut = Annotated[str, Meta(extra_json_schema={"enum": list(PRIORITIES)})]

# Bounds that the engine has as well, here so that the OpenAPI document can tell of them.
_MS_MAX = 2**63 // 4 // 1000
MOMENT_MAX = 2**62 - 1
LATE_ENOUGH_US = 10**14
_LIKE_SECONDS = {"not": {"minimum": 1_500_000_000, "exclusiveMaximum": 2_500_000_000}}

Milliseconds = Annotated[int, Meta(ge=0, le=_MS_MAX)]
DueMoment = Annotated[int, Meta(ge=LATE_ENOUGH_US, le=MOMENT_MAX, description="Unix microseconds.")]
PastMoment = Annotated[
    int,
    Meta(ge=-MOMENT_MAX, le=MOMENT_MAX, description="Unix microseconds.", extra_json_schema=_LIKE_SECONDS),
]


class Base64(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Bytes that are not text."""

    base64: bytes


class ContentIn(msgspec.Struct, forbid_unknown_fields=True):
    """What is in a message that somebody sends. What is null is not given."""

    value: str | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: bytes | UnsetType | None = UNSET
    headers: dict[str, str | Base64] | None = None


class MessageIn(ContentIn, forbid_unknown_fields=True):
    """A message to be put. It has a `value` or a `value_base64`."""

    schema_extra: ClassVar[dict[str, Any]] = {
        **exactly_one("value", "value_base64"),
        "allOf": [at_most_one("key", "key_base64"), at_most_one("delay_ms", "deliver_at")],
        "examples": [{"value": "hello", "key": "k1", "headers": {"a": "1"}, "priority": "high"}],
    }

    priority: Priority = "normal"
    ttl_ms: Annotated[int, Meta(ge=1, le=_MS_MAX)] | None = None
    delay_ms: Milliseconds | None = None
    deliver_at: DueMoment | None = None
    dedup_id: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    dedup_window_ms: Annotated[int, Meta(ge=1, le=_MS_MAX)] | None = None
    """How long the `dedup_id` is remembered, instead of the topic's `dedup_window_ms`."""
    partition: Annotated[int, Meta(ge=0)] | None = None
    timestamp: PastMoment | None = None


class Content(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What every message says on its way out. It has a `value` or a `value_base64`."""

    topic: str
    partition: int
    priority: PriorityOut
    timestamp: int
    headers: dict[str, str | Base64]
    value: str | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    key: str | UnsetType = UNSET
    key_base64: bytes | UnsetType = UNSET
    expires_at: int | None = None
    dedup_id: str | None = None


class MessageOut(Content, kw_only=True):
    """A message of a log. Times are unix microseconds; what was received has a receipt."""

    offset: int
    scheduled_id: str | None = None
    attempt: int | UnsetType = UNSET
    receipt: str | UnsetType = UNSET


def content_from(given: ContentIn) -> tuple[bytes, bytes | None, dict[str, bytes] | None]:
    """Value, key and headers as the engine takes them. Raises InvalidRequest."""
    value = _bytes_of("value", given.value, given.value_base64)
    if value is None:
        raise no_value()
    key = _bytes_of("key", given.key, given.key_base64)
    return value, key, _headers_from(given.headers) if given.headers else None


def message_from(given: MessageIn) -> Message:
    """The message as the engine takes it. Raises InvalidRequest."""
    return Message(
        *content_from(given),
        given.priority,
        # Seconds, which come out as the same microseconds: a double is exact enough for 142 years.
        None if given.ttl_ms is None else given.ttl_ms / 1000,
        None if given.delay_ms is None else given.delay_ms / 1000,
        given.deliver_at,
        given.dedup_id,
        given.timestamp,
        given.partition,
        None if given.dedup_window_ms is None else given.dedup_window_ms / 1000,
    )


def _bytes_of(name: str, text: str | UnsetType | None, base64: bytes | UnsetType | None) -> bytes | None:
    if base64 is UNSET or base64 is None:
        return None if text is UNSET or text is None else text.encode()
    # What is null is not given.
    if text is not UNSET and text is not None:
        raise not_both(name)
    return base64


def _headers_from(headers: dict[str, str | Base64]) -> dict[str, bytes]:
    return {
        name: content.encode() if isinstance(content, str) else content.base64
        for name, content in headers.items()
    }
