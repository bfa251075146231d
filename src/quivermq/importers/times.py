"""Times as other queues write them, as unix microseconds."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def rfc3339_us(text: object) -> int:
    """A moment such as `2026-11-15T19:48:28.546300169Z`; what is finer than a microsecond is cut off.

    Raises ValueError.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a moment")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return (moment - _EPOCH) // _MICROSECOND
