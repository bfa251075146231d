"""Writes TinyMQ logs, line by line as TinyMQ does, for the tests of its reader."""

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

MOMENT = "2026-11-15T19:56:10.753951651Z"
MOMENT_US = 1_794_772_570_753_951


def uuid(number: int) -> str:
    return str(UUID(int=number))


def summed(record: Mapping[str, Any]) -> bytes:
    """A line without its end, with its checksum."""
    # As Go writes JSON: no spaces, and signs of HTML escaped.
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    data = text.encode()
    return data[:-1] + b',"checksum":%d}' % crc32(data)


def message(
    number: int, payload: bytes | None = None, *, topic: str = "orders", **fields: Any
) -> dict[str, Any]:
    """The message of a PUT."""
    encoded = b64encode(b"message %d" % number if payload is None else payload).decode()
    told = {"id": uuid(number), "topic": topic, "payload": encoded, "timestamp": MOMENT}
    return {**told, "retry_count": 0, **fields}


def put(number: int, payload: bytes | None = None, *, topic: str = "orders", **fields: Any) -> bytes:
    """The line of a PUT."""
    record = {
        "type": "PUT",
        "message": message(number, payload, topic=topic, **fields),
        "timestamp": MOMENT,
    }
    return summed(record)


def ack(number: int) -> bytes:
    """The line of an ACK."""
    return summed({"type": "ACK", "message_id": uuid(number), "timestamp": MOMENT})


def write_log(path: Path, *lines: bytes) -> Path:
    """A log of these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path
