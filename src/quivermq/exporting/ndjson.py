"""Messages as lines of JSON, with the fields that docs/reference/http.md gives them.

A line is put together by hand: most of it is the same for all messages of a lane.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from json.encoder import encode_basestring as quoted

from quivermq.frame import Record
from quivermq.spark.place import Lane


class NdjsonLines:
    """Writes the messages of one lane."""

    def __init__(self, lane: Lane) -> None:
        place = {"topic": lane.topic, "partition": lane.partition, "priority": lane.priority}
        self._begin = json.dumps(place, separators=(",", ":"), ensure_ascii=False)[:-1]

    def of(self, records: Sequence[Record]) -> bytes:
        """A line for each of them."""
        return "".join(map(self._line, records)).encode()

    def _line(self, record: Record) -> str:
        offset, timestamp, key, value, headers, expires_at, dedup_id, _ = record
        parts = [f'{self._begin},"offset":{offset},"timestamp":{timestamp}']
        if expires_at is not None:
            parts.append(f'"expires_at":{expires_at}')
        if dedup_id is not None:
            parts.append(f'"dedup_id":{quoted(dedup_id)}')
        if (scheduled_id := record.scheduled_id) is not None:
            parts.append(f'"scheduled_id":{quoted(scheduled_id)}')
        parts.append(f'"headers":{{{",".join(map(_header, headers.items()))}}}')
        if key is not None:
            parts.append(_field("key", key))
        parts.append(_field("value", value))
        return ",".join(parts) + "}\n"


def _field(name: str, content: bytes) -> str:
    try:
        return f'"{name}":{quoted(content.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{b64encode(content).decode()}"'


def _header(pair: tuple[str, bytes]) -> str:
    name, content = pair
    try:
        return f"{quoted(name)}:{quoted(content.decode())}"
    except UnicodeDecodeError:
        return f'{quoted(name)}:{{"base64":"{b64encode(content).decode()}"}}'
