"""Lines of a TinyMQ log: JSON records, each with a checksum of its own raw bytes. Pure.

    {"type":"PUT","message":{…},"timestamp":…,"checksum":N}
    {"type":"ACK","message_id":…,"timestamp":…,"checksum":N}

N is the CRC-32 of the line without `,"checksum":N`. Older lines have none, or 0, and are believed.
"""

import re
from binascii import Error as NotBase64
from binascii import a2b_base64
from typing import Any, NamedTuple
from zlib import crc32

from quivermq.importers.files import parse_json
from quivermq.importers.times import rfc3339_us

PUT, ACK = "PUT", "ACK"

_CHECKSUM = b',"checksum":'
_CHECKSUM_END = re.compile(rb',\s*"checksum"\s*:\s*([0-9]{1,10})\s*\}\s*')
# What TinyMQ itself writes begins so, and the rest of it needs no look when the checksum is right.
_BEGINNING = re.compile(
    rb'\{"type":"(?:PUT","message":\{"id":"([^"\\\x00-\x1f]*)"|ACK","message_id":"([^"\\\x00-\x1f]*)")'
)
_ATTEMPTS_MAX = 2**31 - 1


class UnreadableLine(Exception):
    """Why a line cannot be used."""


class Glance(NamedTuple):
    """What has to be known of a line to tell which messages live."""

    is_put: bool
    id: bytes


class PutMessage(NamedTuple):
    """What a PUT says."""

    id: str
    topic: str
    value: bytes
    headers: dict[str, bytes] | None
    timestamp_us: int
    expires_at_us: int | None
    deliver_at_us: int | None
    retry_count: int
    put_us: int


def glance(line: bytes) -> Glance:
    """Whether the line is a PUT or an ACK, and of which message. Raises UnreadableLine for a damaged one."""
    match = _BEGINNING.match(line)
    if match is not None and _is_summed(line):
        put_id, ack_id = match.groups()
        return Glance(put_id is not None, ack_id if put_id is None else put_id)
    record = parse_record(line)
    if record["type"] == PUT:
        return Glance(True, message_of(record).id.encode(errors="surrogatepass"))
    return Glance(False, _text(record, "message_id").encode(errors="surrogatepass"))


def _is_summed(line: bytes) -> bool:
    """Whether the line ends with a checksum, as TinyMQ writes it, and it is right."""
    at = line.rfind(_CHECKSUM)
    told = line[at + len(_CHECKSUM) : -1]
    if at < 0 or not told.isdigit() or line[-1:] != b"}" or not (checksum := int(told)):
        return False
    return crc32(b"}", crc32(memoryview(line)[:at])) == checksum


def parse_record(line: bytes) -> dict[str, Any]:
    """The record that a line is. Raises UnreadableLine."""
    record = _parsed(line)
    _check_sum(line, record)
    if record.get("type") not in (PUT, ACK):
        raise UnreadableLine(f"the line is neither a PUT nor an ACK but {str(record.get('type'))[:40]!r}")
    return record


def parse_put(line: bytes) -> PutMessage:
    """The message of a line at which `glance` has looked. Raises UnreadableLine."""
    return message_of(_parsed(line))


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise UnreadableLine(f"the line is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise UnreadableLine("the line is not a JSON object")
    return record


def _check_sum(line: bytes, record: dict[str, Any]) -> None:
    told = record.get("checksum")
    if told is None or (told == 0 and isinstance(told, int)):
        return
    # Only the last one: a message may have a header of that name.
    matches = list(_CHECKSUM_END.finditer(line))
    if not matches or not isinstance(told, int) or int(matches[-1][1]) != told:
        raise UnreadableLine("the checksum is not a number at the end of the line")
    summed = line[: matches[-1].start()] + b"}"
    if crc32(summed) != told:
        raise UnreadableLine("the checksum of the line does not match")


def message_of(record: dict[str, Any]) -> PutMessage:
    """The message of a PUT. Raises UnreadableLine."""
    told = record.get("message")
    if not isinstance(told, dict):
        raise UnreadableLine("the line is a PUT without a message")
    try:
        timestamp_us = rfc3339_us(told.get("timestamp"))
        put = record.get("timestamp")
        return PutMessage(
            _text(told, "id"),
            _text(told, "topic"),
            _payload(told.get("payload")),
            _headers(told.get("headers")),
            timestamp_us,
            _moment_us(told.get("expires_at")),
            _moment_us(told.get("deliver_at")),
            _count(told.get("retry_count")),
            timestamp_us if put is None else rfc3339_us(put),
        )
    except (ValueError, OverflowError) as error:
        raise UnreadableLine(f"the message of the line cannot be read: {error}") from None


def _text(told: dict[str, Any], name: str) -> str:
    text = told.get(name, "")
    if not isinstance(text, str):
        raise UnreadableLine(f"its {name} is not a text")
    return text


def _payload(told: object) -> bytes:
    if told is None:
        return b""
    if not isinstance(told, str):
        raise ValueError("its payload is not a text")
    try:
        return a2b_base64(told, strict_mode=True)
    except NotBase64 as error:
        raise ValueError(f"its payload is not base64: {error}") from None


def _headers(told: object) -> dict[str, bytes] | None:
    if told is None:
        return None
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        raise ValueError("its headers are not texts")
    # What stands for no character, such as half of a surrogate pair, is written out.
    return {
        name.encode(errors="backslashreplace").decode(): value.encode(errors="backslashreplace")
        for name, value in told.items()
    } or None


def _moment_us(told: object) -> int | None:
    return None if told is None else rfc3339_us(told)


def _count(told: object) -> int:
    if told is None:
        return 0
    if not isinstance(told, int) or isinstance(told, bool):
        raise ValueError("its retry_count is not a number")
    return min(max(told, 0), _ATTEMPTS_MAX)
