"""Spans of time and moments, in every form in which Python has them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.wrong import mistakes

import quivermq
from quivermq import Message

_HOUR = timedelta(hours=1)
_NOW = datetime.now(UTC)
_NOW_S = _NOW.timestamp()


def test_a_timedelta_is_taken_wherever_seconds_are(mq: Any, orders: Any) -> None:
    assert orders.put(b"later", delay=_HOUR).scheduled_id
    assert orders.put_many([Message(b"later", delay=_HOUR)])[0].scheduled_id
    waiting = {scheduled.deliver_at for scheduled in orders.scheduled()}
    assert all(3_000_000_000 < due - _NOW_S * 1_000_000 < 4_500_000_000 for due in waiting)
    orders.put(b"x", ttl=_HOUR)
    message = orders.get(timeout=timedelta(seconds=5), lease=_HOUR)
    assert message.expires_at - message.timestamp == pytest.approx(3_600_000_000, abs=1_000_000)
    message.extend(_HOUR)
    orders.extend(message, _HOUR)
    message.nack(delay=_HOUR)
    assert orders.stats().retrying == 1
    assert orders.get(timeout=timedelta(milliseconds=10)) is None
    assert orders.pop(timeout=timedelta(0)) is None


def test_a_handler_may_hold_its_message_for_a_timedelta(orders: Any) -> None:
    orders.put_many([b"a", b"b"])
    with orders.process(timeout=_HOUR, lease=_HOUR) as message:
        assert message.value == b"a"
    stream = orders.stream(timeout=timedelta(0), lease=_HOUR)
    assert [message.value for message in stream] == [b"b"]
    assert orders.stats().pending == 0


WRONG: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda q: q.put(b"x", delay=-_HOUR), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", ttl=timedelta(0)), quivermq.InvalidRequest),
    (lambda q: q.get(timeout=-_HOUR), quivermq.InvalidRequest),
    (lambda q: q.get(lease=timedelta(0)), quivermq.InvalidRequest),
    # Milliseconds, microseconds and nanoseconds, where seconds are meant.
    (lambda q: q.put(b"x", deliver_at=_NOW_S * 1e3), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", deliver_at=_NOW_S * 1e6), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", deliver_at=_NOW_S * 1e9), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", timestamp=_NOW_S * 1e3), quivermq.InvalidRequest),
    (lambda q: q.seek(timestamp=_NOW_S * 1e3), quivermq.InvalidRequest),
    # Seconds, milliseconds and nanoseconds, where microseconds are meant.
    (lambda q: q.put(b"x", deliver_at=int(_NOW_S)), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", deliver_at=int(_NOW_S * 1e3)), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", deliver_at=int(_NOW_S * 1e9)), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", timestamp=int(_NOW_S * 1e3)), quivermq.InvalidRequest),
    (lambda q: q.put(b"x", timestamp=int(_NOW_S * 1e9)), quivermq.InvalidRequest),
]


def test_a_moment_of_the_wrong_unit_is_refused(orders: Any) -> None:
    orders.put(b"there")
    assert mistakes(WRONG, orders) == []
    assert (orders.stats().pending, orders.scheduled()) == (1, [])


def test_the_error_names_the_unit(orders: Any) -> None:
    with pytest.raises(quivermq.InvalidRequest, match=r"deliver_at .* looks like milliseconds"):
        orders.put(b"x", deliver_at=_NOW_S * 1e3)


class Whole(int):
    """What an enumeration or another library may have for a number."""


def test_a_moment_may_be_of_a_kind_of_int(orders: Any) -> None:
    orders.put(b"x", timestamp=Whole(1_000_000))
    assert orders.get().timestamp == 1_000_000
    with pytest.raises(quivermq.InvalidRequest, match="looks like"):
        orders.put(b"x", timestamp=Whole(_NOW_S * 1e3))


def test_a_moment_far_away_is_taken(orders: Any) -> None:
    orders.put(b"x", deliver_at=datetime(2999, 1, 1, tzinfo=UTC))
    orders.put(b"x", deliver_at=32_503_680_000.0)
    assert [waiting.deliver_at // 10**15 for waiting in orders.scheduled()] == [32, 32]
