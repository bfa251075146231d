"""Numbers, words, spans and moments as users give them, and the checks that refuse what cannot be meant."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from quivermq.errors import InvalidRequest
from quivermq.model.topic_settings import TopicSettings

Moment = int | float | datetime


# A span of time: seconds, or a timedelta.
Period = float | timedelta


INT64_MAX = 2**63 - 1


_SECONDS_MAX = INT64_MAX // 1_000_000 // 4


# From 2017 to 2049. As microseconds, seconds would be some minutes in January 1970, milliseconds some days
# of it, and nanoseconds thousands of years from now: nobody means that.
_LIKE = {
    "seconds": range(1_500_000_000, 2_500_000_000),
    "milliseconds": range(1_500_000_000_000, 2_500_000_000_000),
    "nanoseconds": range(1_500_000_000_000_000_000, 2_500_000_000_000_000_000),
}


# As seconds the year 5138, as milliseconds 1973: a float as large as this was not meant as seconds.
_UNLIKE_SECONDS = 1e11


# Between milliseconds and nanoseconds of these years: what is a time in microseconds for certain.
UNMISTAKABLE_US = (_LIKE["milliseconds"].stop, _LIKE["nanoseconds"].start)


_WAYS = "give unix seconds as a float, unix microseconds as an int, or a datetime"


def seconds_us(what: str, given: Any, *, lowest: float) -> int:
    """Seconds as microseconds. Raises InvalidRequest for what is no sensible number of seconds."""
    if isinstance(given, timedelta):
        given = given.total_seconds()
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not lowest <= given <= _SECONDS_MAX:
        raise InvalidRequest(
            f"{what} is a number of seconds or a timedelta, at least {lowest:g} s, not {given!r}"
        )
    microseconds: int = round(given * 1_000_000)
    return microseconds


def seconds_of(what: str, given: Any, *, lowest: float) -> float:
    """A period as seconds. Raises InvalidRequest for what is no sensible number of seconds."""
    seconds_us(what, given, lowest=lowest)
    seconds: float = given.total_seconds() if isinstance(given, timedelta) else given
    return seconds


def moment_us(what: str, given: Any) -> int:
    """A moment as unix microseconds: whole numbers are that, others are unix seconds."""
    if type(given) is int and UNMISTAKABLE_US[0] <= given < UNMISTAKABLE_US[1]:
        return given
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidRequest(f"{what} needs a time zone: use datetime.now(timezone.utc) or like it")
        return round(given.timestamp() * 1_000_000)
    if isinstance(given, float) and -_SECONDS_MAX <= given <= _SECONDS_MAX:
        if abs(given) >= _UNLIKE_SECONDS:
            raise InvalidRequest(f"{what} {given!r} looks like milliseconds or less: {_WAYS}")
        return round(given * 1_000_000)
    if isinstance(given, int) and not isinstance(given, bool) and abs(given) <= INT64_MAX // 2:
        # An exact int: for one of a subclass, a range would be walked over from its begin to its end.
        number = int(given)
        for unit, range_ in _LIKE.items():
            if number in range_:
                raise InvalidRequest(f"{what} {number} looks like {unit}: {_WAYS}")
        return number
    raise InvalidRequest(
        f"{what} is unix microseconds as an int, unix seconds as a float, or a datetime, not {given!r}"
    )


_DEDUP_ID_BYTES_MAX = 1024


def check_dedup_id(dedup_id: str) -> None:
    """Raise InvalidRequest for one that is empty or too long."""
    if not 0 < len(dedup_id.encode()) <= _DEDUP_ID_BYTES_MAX:
        raise InvalidRequest(f"dedup_id has 1 to {_DEDUP_ID_BYTES_MAX} bytes")


def check_partition(partition: object, settings: TopicSettings) -> None:
    """Raise InvalidRequest for a partition that the topic does not have."""
    if partition is None:
        return
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise InvalidRequest(f"partition is a number, not {partition!r}")
    if not 0 <= partition < settings.partitions:
        raise InvalidRequest(f"there is no partition {partition}: the topic has {settings.partitions}")
    if settings.spread_index is not None and partition not in settings.own_partitions:
        raise InvalidRequest(
            f"partition {partition} is on another shard: this one has share {settings.spread_index} of"
            f" {settings.spread}"
        )


def check_number(what: str, given: object, lowest: int, highest: int) -> None:
    """Raise InvalidRequest unless it is a whole number in that range."""
    if not isinstance(given, int) or isinstance(given, bool) or not lowest <= given <= highest:
        raise InvalidRequest(f"{what} is a whole number from {lowest} to {highest}, not {given!r}")


def check_choice(what: str, given: object, choices: Sequence[str]) -> None:
    """Raise InvalidRequest unless it is one of these words."""
    if given not in choices:
        raise InvalidRequest(f"{what} is one of {', '.join(choices)}, not {given!r}")


def check_limit(limit: object) -> None:
    """Raise InvalidRequest unless it is a number of messages, or None for all."""
    if limit is not None:
        check_number("limit", limit, 0, INT64_MAX)


def check_ids(ids: object) -> None:
    """Raise InvalidRequest unless they are ids of dead letters or of delayed messages."""
    # A text is a collection of texts, too, and never meant as one.
    if isinstance(ids, str) or not isinstance(ids, Collection) or not all(isinstance(i, str) for i in ids):
        raise InvalidRequest(f"ids are a list of texts such as 0-1-25, not a {type(ids).__name__}")


def needs_broker(what: str) -> InvalidRequest:
    """The error of a backend that has no broker behind it."""
    return InvalidRequest(f"{what} needs a broker: use quivermq.connect, or quivermq.aio.connect")
