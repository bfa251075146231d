"""Spans and moments of time as people write them."""

import re
from datetime import UTC, datetime

from quivermq.errors import InvalidRequest

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Few enough digits to be harmless; what they mean in the end is checked where it is used.
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(ms|s|m|h|d)?")


def parse_seconds(text: str) -> float:
    """Seconds, from `500ms`, `5s`, `2m`, `1h`, `7d`, or just a number of seconds."""
    milliseconds = duration_ms(text)
    if milliseconds is None:
        raise InvalidRequest(f"{text!r:.80} is no span of time: write 500ms, 5s, 2m, 1h or 7d")
    return milliseconds / 1000


def duration_ms(text: str, *, unit: str = "s") -> float | None:
    """Milliseconds; a number alone counts in `unit`. None for what is no span of time."""
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _UNITS_MS[match[2] or unit]


def parse_moment(text: str) -> datetime:
    """A moment, from `2026-01-31T12:00:00+01:00` or unix seconds; without a zone it is UTC."""
    try:
        if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text):
            return datetime.fromtimestamp(float(text), UTC)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{text!r:.80} is no moment: write 2026-01-31T12:00:00Z, or unix seconds"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def moment_text(microseconds: int) -> str:
    """Unix microseconds for people, in UTC."""
    try:
        moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        # A producer may give any number as the time of its message.
        return str(microseconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{microseconds % 1_000_000 // 1000:03}Z"
