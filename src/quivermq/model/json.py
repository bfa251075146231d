"""Messages as JSON has them, both ways: over HTTP, on the command line, in exported files.

`..._json` makes a document of a value, and `..._of` the value of a document. Bytes that are UTF-8 stand
there as text, others as base64 under a name that says so. Times are unix microseconds, periods
milliseconds. docs/reference/http.md has the fields; `stats_json` has everything that is no message.
"""

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping
from datetime import timedelta
from json.encoder import encode_basestring as quoted
from math import ceil
from typing import Any

from quivermq.clock import SystemClock
from quivermq.errors import InvalidRequest
from quivermq.model.checks import Period, moment_us
from quivermq.model.dead_letters import DeadLetter, dlq_headers
from quivermq.model.deliveries import Delivery, InFlight
from quivermq.model.lanes import PRIORITIES
from quivermq.model.messages import Message, Put, Record, Scheduled, StoredMessage

# The types of bodies.
JSON = "application/json"
FRAME = "application/vnd.quiver.frame"
DELIVERY = "application/vnd.quiver.delivery"
OCTETS = "application/octet-stream"

Document = dict[str, Any]

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
_WHERE_IT_WAS = {"topic", "offset", "attempt", "receipt", "scheduled_id"}
# Less than every other time to live: what has expired is still a message, and is not delivered.
_NO_TIME_S = 0.000_001
# What only some messages have, and what only some types of messages know.
_OPTIONAL = ("expires_at", "dedup_id", "scheduled_id")

STORED = ("topic", "partition", "priority", "offset", "timestamp")
DELIVERED = (*STORED, "attempt", "receipt")


# A message on its way in.


def message_json(message: Message) -> Document:
    """A message to put, which was checked."""
    document: Document = {"value_base64": base64_text(message.value)}
    if message.key is not None:
        document["key_base64"] = base64_text(message.key)
    if message.headers:
        document["headers"] = {
            name: {"base64": base64_text(content)} for name, content in message.headers.items()
        }
    if message.priority != "normal":
        document["priority"] = message.priority
    for name, period in (
        ("ttl_ms", message.ttl),
        ("delay_ms", message.delay),
        ("dedup_window_ms", message.dedup_window),
    ):
        if period is not None:
            document[name] = milliseconds(period)
    for name, moment in (("deliver_at", message.deliver_at), ("timestamp", message.timestamp)):
        if moment is not None:
            document[name] = moment_us(name, moment)
    if message.dedup_id is not None:
        document["dedup_id"] = message.dedup_id
    if message.partition is not None:
        document["partition"] = message.partition
    return document


def message_of_line(text: bytes) -> Message:
    """The message that a line of NDJSON is. Raises InvalidRequest."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequest('a message is an object such as {"value": "hello"}')
    return message_of(document)


def message_of(document: Mapping[str, Any]) -> Message:
    """The message that somebody describes. What JSON has a type for is checked where it is put.

    Raises InvalidRequest that names the field.
    """
    unknown = document.keys() - _FIELDS - _WHERE_IT_WAS
    if unknown:
        raise InvalidRequest(
            f"a message has no field {', '.join(sorted(unknown))!r:.200};"
            f" its fields are {', '.join(sorted(_FIELDS))}"
        )
    value = _bytes_of(document, "value")
    if value is None:
        raise no_value()
    return Message(
        value=value,
        key=_bytes_of(document, "key"),
        headers=None if document.get("headers") is None else _headers_of(document),
        priority=document.get("priority", "normal"),
        ttl=_ttl_of(document),
        delay=_seconds_of(document, "delay_ms"),
        deliver_at=document.get("deliver_at"),
        dedup_id=document.get("dedup_id"),
        dedup_window=_seconds_of(document, "dedup_window_ms"),
        timestamp=document.get("timestamp"),
        partition=document.get("partition"),
    )


def _ttl_of(document: Mapping[str, Any]) -> float | None:
    """How long it lives from when it is put, or due; a message that was stored says until when."""
    ttl, expires_at = _seconds_of(document, "ttl_ms"), document.get("expires_at")
    if expires_at is None or ttl is not None:
        return ttl
    if not isinstance(expires_at, int) or isinstance(expires_at, bool):
        raise InvalidRequest(f"expires_at is a number of unix microseconds, not {expires_at!r:.80}")
    if document.get("delay_ms") is not None or document.get("deliver_at") is not None:
        raise InvalidRequest("a message that is delayed expires after a ttl_ms, not at an expires_at")
    return max((expires_at - SystemClock().now_us()) / 1_000_000, _NO_TIME_S)


def _seconds_of(document: Mapping[str, Any], name: str) -> float | None:
    given = document.get(name)
    if given is None:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise InvalidRequest(f"{name} is a number of milliseconds, not {given!r:.80}")
    return given / 1000


def milliseconds(period: Period) -> int:
    """A period as JSON has it, never less than was meant."""
    seconds = period.total_seconds() if isinstance(period, timedelta) else period
    return ceil(round(seconds * 1000, 3))


# Bytes.


def base64_text(content: bytes | bytearray | memoryview) -> str:
    """Bytes that need not be text."""
    # Whoever handed a message over may have it in a view that is not contiguous.
    return b2a_base64(bytes(content), newline=False).decode()


def base64_bytes(name: str, text: object) -> bytes:
    """What base64 stands for. Raises InvalidRequest."""
    try:
        return a2b_base64(text, strict_mode=True)  # type: ignore[arg-type]  # What is no text, it refuses.
    except (TypeError, ValueError):
        raise InvalidRequest(f"{name} is not base64: {text!r:.80}") from None


def no_value() -> InvalidRequest:
    return InvalidRequest("a message has a value, as text, or a value_base64")


def not_both(name: str) -> InvalidRequest:
    return InvalidRequest(f"a message has a {name} or a {name}_base64, not both")


def _bytes_of(document: Mapping[str, Any], name: str) -> bytes | None:
    text, base64 = document.get(name), document.get(f"{name}_base64")
    if base64 is None:
        return None if text is None else _encoded(name, text)
    if text is not None:
        raise not_both(name)
    return base64_bytes(f"{name}_base64", base64)


def _encoded(name: str, text: object, what: str = "") -> bytes:
    if not isinstance(text, str):
        raise InvalidRequest(f"{what}{name} is a text, not {text!r:.80}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what}{name} has half a surrogate pair: send such bytes as base64") from None


def _headers_of(document: Mapping[str, Any]) -> dict[str, bytes]:
    given = document["headers"]
    if not isinstance(given, dict):
        raise InvalidRequest("headers are an object of names and texts")
    return {name: _header_of(name, content) for name, content in given.items()}


def _header_of(name: str, content: object) -> bytes:
    if isinstance(content, dict) and content.keys() == {"base64"}:
        return base64_bytes(f"the header {name}", content["base64"])
    return _encoded(name, content, "the header ")


def _header_json(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64_text(content)}


# Messages on their way out of a broker. Their bytes are left as they are where they are no text: msgspec
# writes base64 of them, and a copy of each is saved. Thousands of messages a second go through here.


def stored_message_json(
    message: Record | StoredMessage, topic: str, partition: int, priority: str
) -> Document:
    """A message of a log, which says itself where it is, or does not."""
    document = _content_json(topic, partition, priority, message.timestamp, message.headers, message)
    if message.expires_at is not None:
        document["expires_at"] = message.expires_at
    if message.dedup_id is not None:
        document["dedup_id"] = message.dedup_id
    document["offset"] = message.offset
    if message.scheduled_id is not None:
        document["scheduled_id"] = message.scheduled_id
    return document


def delivery_json(delivery: Delivery) -> Document:
    """A message in the hands of a consumer, with what it needs to settle it."""
    settler = delivery._settler
    document = stored_message_json(delivery._record, settler.topic, settler.partition, delivery.priority)
    document["attempt"] = delivery.attempt
    document["receipt"] = delivery.receipt
    return document


def scheduled_json(message: Scheduled, topic: str) -> Document:
    """A message that waits."""
    document = _content_json(
        topic, message.partition, message.priority, message.timestamp, message.headers, message
    )
    if message.expires_at is not None:
        document["expires_at"] = message.expires_at
    if message.dedup_id is not None:
        document["dedup_id"] = message.dedup_id
    return document | {"id": message.id, "deliver_at": message.deliver_at}


def dead_letter_json(letter: DeadLetter, topic: str) -> Document:
    """A message that was given up, where it lies in the dead-letter topic, with the headers it had."""
    partition, lane, offset = map(int, letter.id.split("-"))
    document = _content_json(
        topic, partition, PRIORITIES[lane], letter.timestamp, letter.original_headers, letter
    )
    document["offset"] = offset
    if letter.scheduled_id is not None:
        document["scheduled_id"] = letter.scheduled_id
    origin = {name: getattr(letter, name) for name in ("topic", "partition", "priority", "offset")}
    return document | {
        "id": letter.id,
        "reason": letter.reason,
        "error": letter.error,
        "attempts": letter.attempts,
        "group": letter.group,
        "origin": origin,
        "died_at": letter.time,
        "by_hand": letter.by_hand,
    }


def _content_json(
    topic: str,
    partition: int,
    priority: str,
    timestamp: int,
    headers: dict[str, bytes],
    message: Record | StoredMessage | Scheduled | DeadLetter,
) -> Document:
    document: Document = {
        "topic": topic,
        "partition": partition,
        "priority": priority,
        "timestamp": timestamp,
        "headers": {name: _header_json(content) for name, content in headers.items()} if headers else {},
    }
    try:
        document["value"] = message.value.decode()
    except UnicodeDecodeError:
        document["value_base64"] = message.value
    if message.key is not None:
        try:
            document["key"] = message.key.decode()
        except UnicodeDecodeError:
            document["key_base64"] = message.key
    return document


# The same for people and files, where the value comes last.


# Of any type, because everything that has messages has a type of its own for them.
def listed_json(message: Any, names: Iterable[str]) -> Document:
    """The attributes of these names, what else the message has, and its bytes."""
    document: Document = {name: getattr(message, name) for name in names}
    for name in _OPTIONAL:
        if (given := getattr(message, name, None)) is not None:
            document[name] = given
    document["headers"] = {name: _header_json(content) for name, content in message.headers.items()}
    for name, content in (("key", message.key), ("value", message.value)):
        if content is not None:
            try:
                document[name] = content.decode()
            except UnicodeDecodeError:
                document[f"{name}_base64"] = base64_text(content)
    return document


def record_line(begin: str, record: Record) -> str:
    """A message as a line of NDJSON, put together by hand: most of it is the same for all of a lane.

    `begin` is the JSON of the lane without its last brace.
    """
    parts = [f'{begin},"offset":{record.offset},"timestamp":{record.timestamp}']
    if record.expires_at is not None:
        parts.append(f'"expires_at":{record.expires_at}')
    if record.dedup_id is not None:
        parts.append(f'"dedup_id":{quoted(record.dedup_id)}')
    if record.scheduled_id is not None:
        parts.append(f'"scheduled_id":{quoted(record.scheduled_id)}')
    parts.append(f'"headers":{{{",".join(map(_header_text, record.headers.items()))}}}')
    if record.key is not None:
        parts.append(_field_text("key", record.key))
    parts.append(_field_text("value", record.value))
    return ",".join(parts) + "}\n"


def _field_text(name: str, content: bytes) -> str:
    try:
        return f'"{name}":{quoted(content.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{base64_text(content)}"'


def _header_text(pair: tuple[str, bytes]) -> str:
    name, content = pair
    try:
        return f"{quoted(name)}:{quoted(content.decode())}"
    except UnicodeDecodeError:
        return f'{quoted(name)}:{{"base64":"{base64_text(content)}"}}'


# What a broker answers.


def put_of(document: Mapping[str, Any]) -> Put:
    """Where a message is."""
    return Put(*(document[name] for name in Put._fields))


def stored_message_of(document: Mapping[str, Any]) -> StoredMessage:
    """A message of the log."""
    # By position, which takes half of the time: a page of a log has thousands of them.
    return StoredMessage(
        document["topic"],
        document["partition"],
        document["priority"],
        document["offset"],
        document["timestamp"],
        _bytes_of(document, "key"),
        _value_of(document),
        _headers_of(document),
        document.get("expires_at"),
        document.get("dedup_id"),
        document.get("scheduled_id"),
    )


def scheduled_of(document: Mapping[str, Any]) -> Scheduled:
    """A message that waits."""
    return Scheduled(
        id=document["id"],
        deliver_at=document["deliver_at"],
        partition=document["partition"],
        priority=document["priority"],
        key=_bytes_of(document, "key"),
        value=_value_of(document),
        headers=_headers_of(document),
        timestamp=document["timestamp"],
        expires_at=document.get("expires_at"),
        dedup_id=document.get("dedup_id"),
    )


def dead_letter_of(document: Mapping[str, Any]) -> DeadLetter:
    """A message that was given up."""
    origin, headers, by_hand = document["origin"], _headers_of(document), document["by_hand"]
    end = (
        *(origin[name] for name in ("topic", "partition", "priority", "offset")),
        *(document[name] for name in ("timestamp", "attempts", "reason", "error", "group", "died_at")),
    )
    if not by_hand:
        headers |= dlq_headers(end)
    letter = DeadLetter(document["id"], _value_of(document), _bytes_of(document, "key"), headers, *end)
    return letter._replace(by_hand=by_hand, scheduled_id=document.get("scheduled_id"))


def in_flight_of(topic: str, document: Mapping[str, Any]) -> InFlight:
    """A message that a consumer has."""
    return InFlight(
        topic,
        document["partition"],
        document["priority"],
        document["offset"],
        document["attempt"],
        # HTTP shows what waits for its next attempt in the same list, and `time` is its due time there.
        holder=document["owner"],
        deadline=document["time"],
        first_delivered_at=document["first_delivered_at"],
        last_delivered_at=document["last_delivered_at"],
    )


def _value_of(document: Mapping[str, Any]) -> bytes:
    value = _bytes_of(document, "value")
    if value is None:
        raise no_value()
    return value
