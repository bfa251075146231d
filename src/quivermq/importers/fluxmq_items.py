"""A record of FluxMQ as an item: what the broker wrote among the headers is taken out and understood."""

import re
from pathlib import Path

from quivermq.importers.fluxmq_batches import FluxRecord
from quivermq.importers.model import Death, Findings, Item
from quivermq.importers.times import rfc3339_us

_TOPIC, _ID, _STATE, _EXPIRES_AT = "_topic", "_id", "_state", "_expires_at"
# What a dead letter has besides.
_QUEUE = "_dlq_original_queue"
_ORIGINAL_TOPIC = "_dlq_original_topic"
_ORIGINAL_ID = "_dlq_original_id"
_GROUP = "_dlq_group"
_COUNT = "_dlq_delivery_count"
_MOVED_AT = "_dlq_moved_at"

_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_TIME_US_MAX = 2**62


class FluxTranslator:
    """Makes items, and tells of each kind of problem once: it is likely to be in every message."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._told: set[str] = set()

    def item(self, record: FluxRecord, path: Path, position: int) -> Item:
        """A message of a queue. `path` and `position` are those of its batch."""
        headers = self._headers(record, path, position)
        # Both, or it is a record of somebody who uses the log without the broker.
        if not (_TOPIC in headers and _ID in headers):
            return self._made(record, headers, path, position)
        number = headers.pop(_ID).decode(errors="backslashreplace")
        state = headers.pop(_STATE, b"")
        expires_at_us = self._expiry(headers, path, position)
        item = self._made(record, headers, path, position)
        item.id = number or item.id
        item.expires_at_us = expires_at_us
        item.is_consumed = state == b"acked"
        return item

    def dead_letter(self, record: FluxRecord, path: Path, position: int) -> tuple[str | None, Item]:
        """The same of a dead letter, and the queue it says it comes from."""
        item = self.item(record, path, position)
        # It was acknowledged where it was; as a dead letter it is not.
        item.is_consumed = False
        headers = dict(item.headers or {})
        queue = _text(headers.pop(_QUEUE, None))
        if _ORIGINAL_TOPIC in headers:
            headers[_TOPIC] = headers.pop(_ORIGINAL_TOPIC)
        item.dead = Death(
            original_id=_text(headers.pop(_ORIGINAL_ID, None)),
            attempts=_number(headers.pop(_COUNT, b"")),
            group=_text(headers.pop(_GROUP, None)),
            time_us=_moment(headers.pop(_MOVED_AT, b"")),
        )
        item.headers = headers
        return queue, item

    def _made(self, record: FluxRecord, headers: dict[str, bytes], path: Path, position: int) -> Item:
        return Item(
            identity=record.offset,
            id=str(record.offset),
            value=record.value or b"",
            key=record.key,
            headers=headers,
            timestamp_us=self._time(record.timestamp_ms, path, position),
        )

    def _headers(self, record: FluxRecord, path: Path, position: int) -> dict[str, bytes]:
        try:
            return {name.decode(): content for name, content in record.headers}
        except UnicodeDecodeError:
            self._tell(path, position, "a name of a header is not UTF-8; what is not is written as \\x…")
            return {name.decode(errors="backslashreplace"): content for name, content in record.headers}

    def _expiry(self, headers: dict[str, bytes], path: Path, position: int) -> int | None:
        if _EXPIRES_AT not in headers:
            return None
        number = _number(headers[_EXPIRES_AT])
        if number is None:
            self._tell(path, position, f"a header {_EXPIRES_AT} is no number of milliseconds")
            return None
        del headers[_EXPIRES_AT]
        return self._time(number, path, position)

    def _time(self, milliseconds: int, path: Path, position: int) -> int:
        microseconds = milliseconds * 1000
        if abs(microseconds) <= _TIME_US_MAX:
            return microseconds
        self._tell(path, position, "a time is so far off that it is brought nearer")
        return _TIME_US_MAX if microseconds > 0 else -_TIME_US_MAX

    def _tell(self, path: Path, position: int, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self._findings.add(path, position, problem, is_damage=False)


def _text(content: bytes | None) -> str | None:
    return content.decode(errors="backslashreplace") if content else None


def _number(content: bytes) -> int | None:
    return int(content) if _NUMBER.fullmatch(content) else None


def _moment(content: bytes) -> int | None:
    try:
        return rfc3339_us(content.decode())
    except ValueError:
        return None
