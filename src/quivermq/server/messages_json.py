"""Messages in JSON, both ways.

    message_from(given: MessageIn) -> Message
    record_to_json(record, topic, partition, priority) -> MessageOut
    delivery_to_json(delivery) -> MessageOut           the same, with attempt and receipt

In, a `MessageIn` is what msgspec decodes; base64 is decoded with it. Out, a `MessageOut` is what msgspec
encodes: bytes that are UTF-8 go as text, others as base64, which msgspec makes of bytes by itself.
"""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quivermq.errors import InvalidRequest
from quivermq.model.deliveries import Delivery
from quivermq.model.messages import Message, Record, StoredMessage
from quivermq.server.shapes import at_most_one, exactly_one

Priority = Literal["high", "normal", "low"]
# The same on its way out, where nobody has to check it.
Lane = Annotated[str, Meta(extra_json_schema={"enum": ["high", "normal", "low"]})]

# Bounds that the engine has as well, here so that the OpenAPI document can tell of them.
_MS_MAX = 2**63 // 4 // 1000
_MOMENT_MAX = 2**62 - 1
_LATE_ENOUGH_US = 10**14
_LIKE_SECONDS = {"not": {"minimum": 1_500_000_000, "exclusiveMaximum": 2_500_000_000}}

Milliseconds = Annotated[int, Meta(ge=0, le=_MS_MAX)]
DueMoment = Annotated[int, Meta(ge=_LATE_ENOUGH_US, le=_MOMENT_MAX, description="Unix microseconds.")]
PastMoment = Annotated[
    int,
    Meta(
        ge=-_MOMENT_MAX, le=_MOMENT_MAX, description="Unix microseconds.", extra_json_schema=_LIKE_SECONDS
    ),
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
    priority: Lane
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
        raise InvalidRequest("a message has a value, as text, or a value_base64")
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


def record_to_json(
    record: Record | StoredMessage,
    topic: str,
    partition: int,
    priority: str,
    attempt: int | UnsetType = UNSET,
    receipt: str | UnsetType = UNSET,
) -> MessageOut:
    """A message with its place, ready for JSON."""
    value, value_base64 = text_or_bytes(record.value)
    key, key_base64 = (UNSET, UNSET) if record.key is None else text_or_bytes(record.key)
    return MessageOut(
        topic=topic,
        partition=partition,
        priority=priority,
        offset=record.offset,
        timestamp=record.timestamp,
        headers=headers_to_json(record.headers) if record.headers else {},
        value=value,
        value_base64=value_base64,
        key=key,
        key_base64=key_base64,
        expires_at=record.expires_at,
        dedup_id=record.dedup_id,
        scheduled_id=record.scheduled_id,
        attempt=attempt,
        receipt=receipt,
    )


def delivery_to_json(delivery: Delivery) -> MessageOut:
    """A message in the hands of a consumer, with what it needs to settle it."""
    return record_to_json(
        delivery._record,
        delivery.topic,
        delivery.partition,
        delivery.priority,
        delivery.attempt,
        delivery.receipt,
    )


def headers_to_json(headers: dict[str, bytes]) -> dict[str, str | Base64]:
    """Headers, each as text where it is text."""
    return {name: _text_or_base64(content) for name, content in headers.items()}


def content_fields(value: bytes, key: bytes | None, headers: dict[str, bytes]) -> dict[str, Any]:
    """Value, key and headers, as the fields of a `Content` that have them."""
    text, base64 = text_or_bytes(value)
    key_text, key_base64 = (UNSET, UNSET) if key is None else text_or_bytes(key)
    return {
        "value": text,
        "value_base64": base64,
        "key": key_text,
        "key_base64": key_base64,
        "headers": headers_to_json(headers),
    }


def _bytes_of(name: str, text: str | UnsetType | None, base64: bytes | UnsetType | None) -> bytes | None:
    if base64 is UNSET or base64 is None:
        return None if text is UNSET or text is None else text.encode()
    # What is null is not given.
    if text is not UNSET and text is not None:
        raise InvalidRequest(f"a message has a {name} or a {name}_base64, not both")
    return base64


def _headers_from(headers: dict[str, str | Base64]) -> dict[str, bytes]:
    return {
        name: content.encode() if isinstance(content, str) else content.base64
        for name, content in headers.items()
    }


def text_or_bytes(content: bytes) -> tuple[str | UnsetType, bytes | UnsetType]:
    """Text and nothing, or nothing and the bytes: what goes as `value` and as `value_base64`."""
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, content


def _text_or_base64(content: bytes) -> str | Base64:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return Base64(content)
