"""Dead letters of GoQueue: messages of the topic `<topic>.dlq` whose values are JSON about another one."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from quivermq.importers.files import parse_json
from quivermq.importers.model import Death, Item
from quivermq.importers.times import rfc3339_us


def open_letter(item: Item) -> None:
    """Make an item of such a topic the dead letter it tells of. Raises ValueError when it tells of none."""
    told = parse_json(item.value)
    if not isinstance(told, dict) or not isinstance(told.get("original_topic"), str):
        raise ValueError("it does not say of which topic it is")
    value, key = _bytes(told, "original_value"), _bytes(told, "original_key")
    offset = _number(told, "original_offset")
    item.dead = Death(
        original_id=None if offset is None else str(offset),
        partition=_number(told, "original_partition"),
        offset=offset,
        attempts=_number(told, "delivery_attempts"),
        reason=_text(told, "reason"),
        error=_text(told, "last_error"),
        group=_text(told, "last_group"),
        time_us=_moment(told, "dlq_time"),
    )
    item.value, item.key = value or b"", key or None
    timestamp_us = _moment(told, "original_timestamp")
    if timestamp_us is not None:
        item.timestamp_us = timestamp_us


def _bytes(told: Mapping[str, Any], name: str) -> bytes | None:
    given = told.get(name)
    if given is None:
        return None
    if not isinstance(given, str):
        raise ValueError(f"its {name} is no text")
    return b64decode(given, validate=True)


def _number(told: Mapping[str, Any], name: str) -> int | None:
    given = told.get(name)
    return given if type(given) is int and 0 <= given < 2**63 else None


def _text(told: Mapping[str, Any], name: str) -> str | None:
    given = told.get(name)
    # JSON can say half a character, which nobody could store.
    return given.encode(errors="backslashreplace").decode() if isinstance(given, str) and given else None


def _moment(told: Mapping[str, Any], name: str) -> int | None:
    """None also for the beginning of the year 1, which is what Go writes for no time at all."""
    try:
        moment_us = rfc3339_us(told.get(name))
    except ValueError:
        return None
    return moment_us if moment_us > _YEAR_2_US else None


# In microseconds from 1970.
_YEAR_2_US = -62_104_060_800_000_000
