"""Messages as JSON, with the fields that docs/reference/http.md gives them."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from quivermq.clock import SystemClock
from quivermq.errors import InvalidRequest
from quivermq.model.messages import Message

_FIELDS = {
    "value",
    "value_base64",
    "key",
    "key_base64",
    "headers",
    "priority",
    "ttl_ms",
    "delay_ms",
    "deliver_at",
    "dedup_id",
    "dedup_window_ms",
    "timestamp",
    "partition",
    "expires_at",
}
# What a message says about where it was: `quiver get` writes it, and `quiver put` passes over it.
_STORY = {"topic", "offset", "attempt", "receipt", "scheduled_id"}
# Less than every other time to live: what has expired is still a message, and is not delivered.
_NO_TIME_S = 0.000_001

# Told of every message, where it has them.
_OPTIONAL = ("expires_at", "dedup_id", "scheduled_id")

STORED = ("topic", "partition", "priority", "offset", "timestamp")
DELIVERED = (*STORED, "attempt", "receipt")


def message_line(text: bytes) -> Message:
    """The message that a line of NDJSON is. Raises InvalidRequest."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequest('a message is an object such as {"value": "hello"}')
    return message_from_json(document)


def message_from_json(document: Mapping[str, Any]) -> Message:
    """The message that an object describes. Types are checked here where JSON has others."""
    unknown = document.keys() - _FIELDS - _STORY
    if unknown:
        raise InvalidRequest(
            f"a message has no field {', '.join(sorted(unknown))!r:.200};"
            f" its fields are {', '.join(sorted(_FIELDS))}"
        )
    value = _bytes_of(document, "value")
    if value is None:
        raise InvalidRequest("a message has a value, or a value_base64")
    return Message(
        value=value,
        key=_bytes_of(document, "key"),
        headers=_headers(document.get("headers")),
        priority=document.get("priority", "normal"),
        ttl=_ttl(document),
        delay=_seconds(document, "delay_ms"),
        deliver_at=document.get("deliver_at"),
        dedup_id=document.get("dedup_id"),
        dedup_window=_seconds(document, "dedup_window_ms"),
        timestamp=document.get("timestamp"),
        partition=document.get("partition"),
    )


def _bytes_of(document: Mapping[str, Any], name: str) -> bytes | None:
    text, encoded = document.get(name), document.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise InvalidRequest(f"a message has a {name} or a {name}_base64, not both")
    if encoded is not None:
        return _decoded(f"{name}_base64", encoded)
    return None if text is None else _encoded(name, text)


def _encoded(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise InvalidRequest(f"{name} is a text, not {text!r:.80}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name} has half a surrogate pair: send such bytes as base64") from None


def _decoded(name: str, text: object) -> bytes:
    try:
        return b64decode(text, validate=True)  # type: ignore[arg-type]  # What is no text, it refuses.
    except (TypeError, ValueError):
        raise InvalidRequest(f"{name} is not base64") from None


def _headers(given: object) -> dict[str, bytes] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise InvalidRequest("headers are an object of names and texts")
    return {name: _header(name, content) for name, content in given.items()}


def _header(name: str, content: object) -> bytes:
    if isinstance(content, dict) and content.keys() == {"base64"}:
        return _decoded(f"the header {name}", content["base64"])
    return _encoded(f"the header {name}", content)


def _ttl(document: Mapping[str, Any]) -> float | None:
    """How long it lives from when it is put, or due; a message that was stored says until when."""
    ttl, expires_at = _seconds(document, "ttl_ms"), document.get("expires_at")
    if expires_at is None or ttl is not None:
        return ttl
    if not isinstance(expires_at, int) or isinstance(expires_at, bool):
        raise InvalidRequest(f"expires_at is a number of unix microseconds, not {expires_at!r:.80}")
    if document.get("delay_ms") is not None or document.get("deliver_at") is not None:
        raise InvalidRequest("a message that is delayed expires after a ttl_ms, not at an expires_at")
    return max((expires_at - SystemClock().now_us()) / 1_000_000, _NO_TIME_S)


def _seconds(document: Mapping[str, Any], name: str) -> float | None:
    given = document.get(name)
    if given is None:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise InvalidRequest(f"{name} is a number of milliseconds, not {given!r:.80}")
    return given / 1000


# Of any type, because everything that has messages has a type of its own for them.
def message_as_json(message: Any, names: Iterable[str]) -> dict[str, Any]:
    """What is to be told of a message: the attributes of these names, and its bytes."""
    told: dict[str, Any] = {name: getattr(message, name) for name in names}
    told |= {name: given for name in _OPTIONAL if (given := getattr(message, name, None)) is not None}
    told["headers"] = {name: _header_as_json(content) for name, content in message.headers.items()}
    if message.key is not None:
        told |= _text("key", message.key)
    return told | _text("value", message.value)


def _text(name: str, content: bytes) -> dict[str, str]:
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(content).decode()}


def _header_as_json(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def shown(content: bytes | None, length_max: int = 60) -> str:
    """Bytes for a cell of a table: on one line, and not too long."""
    if content is None:
        return "-"
    text = content[: 4 * length_max].decode(errors="replace")
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    cut = len(text) > length_max or len(content) > 4 * length_max
    return f"{text[: length_max - 1]}…" if cut else text
