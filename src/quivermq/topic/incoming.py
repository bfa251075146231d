"""What a producer hands over, checked in full before anything is written."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from quivermq.clock import SteadyClock
from quivermq.errors import InvalidRequest
from quivermq.log.entries import Rest, checked_entry
from quivermq.settings import StorageSettings
from quivermq.topic.partition import lane_number
from quivermq.topic.settings import TopicSettings

Moment = int | float | datetime
# A span of time: seconds, or a timedelta.
Period = float | timedelta

_INT64_MAX = 2**63 - 1
_SECONDS_MAX = _INT64_MAX // 1_000_000 // 4
# 1973 in microseconds: a smaller number was meant as seconds or milliseconds.
_LATE_ENOUGH_US = 10**14
# From 2017 to 2049. As microseconds, seconds would be some minutes in January 1970, milliseconds some days
# of it, and nanoseconds thousands of years from now: nobody means that.
_LIKE = {
    "seconds": range(1_500_000_000, 2_500_000_000),
    "milliseconds": range(1_500_000_000_000, 2_500_000_000_000),
    "nanoseconds": range(1_500_000_000_000_000_000, 2_500_000_000_000_000_000),
}
# As seconds the year 5138, as milliseconds 1973: a float as large as this was not meant as seconds.
_UNLIKE_SECONDS = 1e11
_DEDUP_ID_BYTES_MAX = 1024
_WAYS = "give unix seconds as a float, unix microseconds as an int, or a datetime"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of `put_many`, with what it needs besides its value."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    priority: str = "normal"
    ttl: Period | None = None
    delay: Period | None = None
    deliver_at: Moment | None = None
    dedup_id: str | None = None
    timestamp: Moment | None = None
    partition: int | None = None
    dedup_window: Period | None = None


class Incoming(NamedTuple):
    """A message that is certain to be storable."""

    value: bytes
    rest: Rest
    lane: int
    partition: int | None
    due: int | None
    window_us: int | None = None
    """How long its deduplication id is remembered; None for as long as the topic says."""


def check_message(
    message: Message, settings: TopicSettings, storage: StorageSettings, clock: SteadyClock
) -> Incoming:
    """The message as it will be stored. Raises InvalidRequest."""
    lane = lane_number(message.priority)
    now_us = clock.now_us()
    due = _due(message, clock, now_us)
    value, rest = checked_entry(
        message.value,
        message.key,
        message.headers or None,
        None if message.timestamp is None else moment_us("timestamp", message.timestamp),
        _expires_at(message, settings, now_us if due is None else due),
        message.dedup_id,
        storage,
    )
    if message.dedup_id is not None:
        check_dedup_id(message.dedup_id)
    check_partition(message.partition, settings)
    assert rest is not None
    return Incoming(value, rest, lane, message.partition, due, _window_us(message))


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


def message_bytes(value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> int:
    """About how much room a message takes."""
    size = len(value) + len(key or b"")
    return size + sum(4 * len(name) + len(content) + 8 for name, content in (headers or {}).items())


def check_number(what: str, given: object, lowest: int, highest: int) -> None:
    """Raise InvalidRequest unless it is a whole number in that range."""
    if not isinstance(given, int) or isinstance(given, bool) or not lowest <= given <= highest:
        raise InvalidRequest(f"{what} is a whole number from {lowest} to {highest}, not {given!r}")


def check_limit(limit: object) -> None:
    """Raise InvalidRequest unless it is a number of messages, or None for all."""
    if limit is not None:
        check_number("limit", limit, 0, _INT64_MAX)


def check_ids(ids: object) -> None:
    """Raise InvalidRequest unless they are the ids of dead letters, or None for all."""
    if ids is None:
        return
    # A text is a collection of texts, too, and never meant as one.
    if isinstance(ids, str) or not isinstance(ids, Collection) or not all(isinstance(i, str) for i in ids):
        raise InvalidRequest(f"ids are a list of texts such as 0-1-25, not a {type(ids).__name__}")


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
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidRequest(f"{what} needs a time zone: use datetime.now(timezone.utc) or like it")
        return round(given.timestamp() * 1_000_000)
    if isinstance(given, float) and -_SECONDS_MAX <= given <= _SECONDS_MAX:
        if abs(given) >= _UNLIKE_SECONDS:
            raise InvalidRequest(f"{what} {given!r} looks like milliseconds or less: {_WAYS}")
        return round(given * 1_000_000)
    if isinstance(given, int) and not isinstance(given, bool) and abs(given) <= _INT64_MAX // 2:
        for unit, range_ in _LIKE.items():
            if given in range_:
                raise InvalidRequest(f"{what} {given} looks like {unit}: {_WAYS}")
        return given
    raise InvalidRequest(
        f"{what} is unix microseconds as an int, unix seconds as a float, or a datetime, not {given!r}"
    )


def _due(message: Message, clock: SteadyClock, now_us: int) -> int | None:
    if message.delay is not None:
        if message.deliver_at is not None:
            raise InvalidRequest("a message has a delay or a deliver_at, not both")
        delay_us = seconds_us("delay", message.delay, lowest=0)
        return now_us + delay_us if delay_us else None
    if message.deliver_at is None:
        return None
    moment = moment_us("deliver_at", message.deliver_at)
    if isinstance(message.deliver_at, int) and moment < _LATE_ENOUGH_US:
        raise InvalidRequest(
            f"deliver_at {moment} looks like seconds: give unix seconds as a float, or unix microseconds"
        )
    due = clock.from_wall(moment)
    return due if due > now_us else None


def _window_us(message: Message) -> int | None:
    if message.dedup_window is None:
        return None
    if message.dedup_id is None:
        raise InvalidRequest("a dedup_window is how long a dedup_id is remembered: give it one")
    return seconds_us("dedup_window", message.dedup_window, lowest=0.001)


def _expires_at(message: Message, settings: TopicSettings, start_us: int) -> int | None:
    if message.ttl is not None:
        return start_us + seconds_us("ttl", message.ttl, lowest=0.000_001)
    return None if settings.ttl_ms is None else start_us + settings.ttl_ms * 1000
