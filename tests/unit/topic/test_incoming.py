"""Messages of producers, checked before anything is written."""

import re
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from support.manual_clock import ManualClock

from quivermq.clock import SteadyClock
from quivermq.errors import InvalidRequest, MessageTooLarge
from quivermq.frame import columns, encode
from quivermq.model.checks import check_limit, check_number, check_partition, moment_us, seconds_us
from quivermq.model.messages import Message
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.incoming import Batch, check_messages
from quivermq.topic.rules import TopicRules
from quivermq.topic.splitting import FrameLimits

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
NAN, INFINITE = float("nan"), float("inf")


def check(
    message: Message, clock: SteadyClock | None = None, *, message_bytes_max: int = 1000, **settings: Any
) -> Batch:
    """What a message becomes, which is the same whether it comes alone or in a batch."""
    clock = clock or SteadyClock(ManualClock(NOW))
    storage = StorageSettings(message_bytes_max=message_bytes_max)
    rules = TopicRules(TopicSettings.make(settings, storage), storage, clock)
    try:
        found = check_all([message], clock, message_bytes_max=message_bytes_max, **settings)
    except InvalidRequest as error:
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            rules.check(*message)
        raise
    alone = Batch.of([rules.check(*message)])
    assert (alone.rest(0), alone.lane(0), due(alone), alone.bytes) == (
        *(found.rest(0), found.lane(0), due(found)),
        found.bytes,
    )
    assert alone.item(alone.partitions, 0) == found.item(found.partitions, 0)
    assert alone.item(alone.windows_us, 0) == found.item(found.windows_us, 0)
    return found


def check_all(
    messages: Sequence[bytes | Message],
    clock: SteadyClock | None = None,
    *,
    message_bytes_max: int = 1000,
    **settings: Any,
) -> Batch:
    storage = StorageSettings(message_bytes_max=message_bytes_max)
    made = TopicSettings.make(settings, storage)
    return check_messages(messages, made, storage, clock or SteadyClock(ManualClock(NOW)))


def due(batch: Batch) -> int | None:
    return batch.item(batch.due, 0)


@pytest.mark.parametrize(
    "given", [[Message(b"a"), Message(b"bc")], [b"a", Message(b"bc")], [b"a", b"bc"], (b"a", b"bc")]
)
def test_plain_messages_need_nothing(given: Sequence[bytes | Message]) -> None:
    found = check_all(given)
    assert (found, found.bytes) == (Batch(found.values), 3)
    assert list(found.values) == [b"a", b"bc"]


def test_no_messages_are_no_batch() -> None:
    assert len(check_all([])) == len(check_all([], ttl_ms=1000)) == 0


def test_a_column_that_one_message_has_is_there_for_all() -> None:
    headers = {"h": b"1"}
    found = check_all(
        [b"a", Message(b"b", b"k"), Message(b"c", headers=headers, timestamp=NOW, priority="high")]
    )
    assert [found.rest(index) for index in range(3)] == [
        (None, {}, None, None, None),
        (b"k", {}, None, None, None),
        (None, headers, NOW, None, None),
    ]
    assert ([found.lane(index) for index in range(3)], found.bytes) == ([1, 1, 0], 6)
    part = found.chosen([2])
    assert (part.rest(0), part.lane(0), part.bytes) == (found.rest(2), 0, 3)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_what_the_caller_may_change_is_copied(kind: Any) -> None:
    given = bytearray(b"a")
    headers = {"h": kind(given)}
    found = check_all([Message(kind(given), kind(given), headers), b"b"])
    given[0] = 0
    headers["more"] = b""
    first, second = encode(**found.columns(NOW)).records()
    assert (first.value, first.key, first.headers) == (b"a", b"a", {"h": b"a"})
    assert (second.value, second.key, second.headers) == (b"b", None, {})


def test_one_that_is_too_large_is_found_among_others() -> None:
    check_all([bytes(990)] * 3 + [Message(bytes(500), bytes(400), {"é": bytes(98)})])
    for wrong in (bytes(1001), Message(bytes(500), bytes(501)), Message(b"", headers={"é": bytes(999)})):
        with pytest.raises(MessageTooLarge):
            check_all([bytes(990), wrong, b"a"])


def test_messages_are_cut_where_a_frame_ends() -> None:
    batch = check_all([Message(bytes(100), b"k", {"h": b""})] * 10)
    parts = list(batch.parts(FrameLimits(4, 10_000)))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert list(batch.parts(FrameLimits(100, 10_000))) == [batch]
    assert [len(part) for part in batch.parts(FrameLimits(100, 400))] == [2] * 5


def test_everything_that_was_said_arrives() -> None:
    message = Message(
        b"a", b"k", {"h": b"1"}, "low", ttl=5, delay=2, dedup_id="é", timestamp=NOW - 1, partition=1
    )
    found = check(message, partitions=2)
    rest = (b"k", {"h": b"1"}, NOW - 1, NOW + 7 * SECOND, "é")
    assert (found.rest(0), found.lane(0), found.partitions, due(found)) == (rest, 2, [1], NOW + 2 * SECOND)


def test_no_headers_are_none() -> None:
    assert check(Message(b"a", headers={})).headers is None


def test_a_ttl_counts_from_when_the_message_can_first_be_delivered() -> None:
    assert check(Message(b"a", ttl=0.5)).rest(0)[3] == NOW + SECOND // 2
    assert check(Message(b"a", ttl=5, delay=10)).rest(0)[3] == NOW + 15 * SECOND
    assert check(Message(b"a", delay=10), ttl_ms=3000).rest(0)[3] == NOW + 13 * SECOND
    assert check(Message(b"a", ttl=5), ttl_ms=3000).rest(0)[3] == NOW + 5 * SECOND


def test_a_delay_of_nothing_is_none() -> None:
    assert due(check(Message(b"a", delay=0))) is None
    assert due(check(Message(b"a", delay=0.0))) is None


@pytest.mark.parametrize(
    ("deliver_at", "expected"),
    [
        (NOW + 5, NOW + 5),
        (NOW / SECOND + 2.5, NOW + 2_500_000),
        (datetime.fromtimestamp(NOW // SECOND + 3, UTC), NOW + 3 * SECOND),
        (datetime.fromtimestamp(NOW // SECOND + 3, timezone(timedelta(hours=5))), NOW + 3 * SECOND),
        (NOW, None),
        (NOW - 1, None),
        (1.0, None),
    ],
)
def test_a_moment_of_delivery(deliver_at: int | float | datetime, expected: int | None) -> None:
    assert due(check(Message(b"a", deliver_at=deliver_at))) == expected


def test_a_moment_of_delivery_is_what_the_clock_on_the_wall_says() -> None:
    wall = ManualClock(NOW)
    clock = SteadyClock(wall)
    wall.jump(3600)
    # In ten seconds, by the clock that everybody sees.
    found = check(Message(b"a", deliver_at=wall.now_us() + 10 * SECOND), clock)
    assert due(found) == NOW + 10 * SECOND


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"value": "text"}, "value"),
        ({"value": None}, "value"),
        ({"key": "text"}, "key"),
        ({"headers": {"a": "text"}}, "header"),
        ({"headers": {"a": array("B", b"text")}}, "header 'a' is a array"),
        ({"headers": {b"a": b""}}, "header"),
        ({"headers": [("a", b"")]}, "header"),
        ({"priority": "urgent"}, "priority"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": -1}, "ttl"),
        ({"ttl": NAN}, "ttl"),
        ({"ttl": "5"}, "ttl"),
        ({"ttl": True}, "ttl"),
        ({"delay": -0.1}, "delay"),
        ({"delay": INFINITE}, "delay"),
        ({"delay": 10**30}, "delay"),
        ({"deliver_at": 1_700_000_000}, "deliver_at"),
        ({"deliver_at": 1_700_000_000_000}, "deliver_at"),
        ({"deliver_at": "soon"}, "deliver_at"),
        ({"deliver_at": NAN}, "deliver_at"),
        ({"deliver_at": datetime(2030, 1, 1)}, "deliver_at"),  # noqa: DTZ001 - What is refused.
        ({"deliver_at": NOW, "delay": 5}, "not both"),
        ({"timestamp": "now"}, "timestamp"),
        ({"timestamp": 2**63}, "timestamp"),
        ({"dedup_id": ""}, "dedup_id"),
        ({"dedup_id": "é" * 513}, "dedup_id"),
        ({"dedup_id": b"x"}, "dedup_id"),
        ({"dedup_id": "\ud800"}, "dedup_id"),
        ({"partition": 2}, "partition"),
        ({"partition": -1}, "partition"),
        ({"partition": "0"}, "partition"),
        ({"partition": True}, "partition"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        # Room for the ids that are too long only in themselves.
        check(Message(**{"value": b"", **wrong}), partitions=2, message_bytes_max=5000)


def test_a_message_that_is_too_large_is_refused() -> None:
    check(Message(bytes(990), key=b"0123456789"))
    with pytest.raises(MessageTooLarge):
        check(Message(bytes(990), key=b"0123456789a"))


def test_messages_that_were_checked_one_by_one_are_a_batch() -> None:
    storage = StorageSettings()
    rules = TopicRules(TopicSettings(partitions=2), storage, SteadyClock(ManualClock(NOW)))
    messages = [
        Message(b"a"),
        Message(b"b", b"k", {"h": b"1"}, "high", ttl=5, timestamp=NOW - 1),
        Message(b"c", delay=1, dedup_id="x", dedup_window=9, partition=1),
    ]
    found, expected = Batch.of([rules.check(*each) for each in messages]), rules.check_many(messages)
    columns = ("values", "keys", "timestamps", "expires_at", "dedup_ids", "lanes", "partitions", "due")
    for name in (*columns, "windows_us"):
        assert list(getattr(found, name)) == list(getattr(expected, name)), name
    assert (found.joined_headers, found.bytes) == (expected.joined_headers, expected.bytes)
    assert found.settings is rules.settings


def test_what_other_settings_let_in_is_looked_at_again() -> None:
    storage, clock = StorageSettings(message_bytes_max=100), SteadyClock(ManualClock(NOW))
    wide = TopicRules(TopicSettings(partitions=3), StorageSettings(), clock)
    narrow = TopicRules(TopicSettings(partitions=2), storage, clock)
    narrow.check_again(Batch.of([wide.check(b"a", partition=1)]))
    for wrong, error in (
        (Message(b"a", partition=2), InvalidRequest),
        (Message(bytes(101)), MessageTooLarge),
    ):
        with pytest.raises(error):
            narrow.check_again(Batch.of([narrow.check(b"a"), wide.check(*wrong)]))


@pytest.mark.parametrize("partition", [None, 0, 2])
def test_partitions_that_are_there(partition: int | None) -> None:
    check_partition(partition, TopicSettings(partitions=3))


@pytest.mark.parametrize("limit", [None, 0, 1, 2**62])
def test_limits(limit: int | None) -> None:
    check_limit(limit)


@pytest.mark.parametrize("limit", [-1, 1.5, "1", True, 2**63])
def test_no_limits(limit: object) -> None:
    with pytest.raises(InvalidRequest, match="limit"):
        check_limit(limit)


@pytest.mark.parametrize("number", [0, 11, None, 5.0, False])
def test_a_number_has_a_range(number: object) -> None:
    check_number("count", 1, 1, 10)
    check_number("count", 10, 1, 10)
    with pytest.raises(InvalidRequest, match="count is a whole number from 1 to 10"):
        check_number("count", number, 1, 10)


def test_seconds_are_rounded_to_microseconds() -> None:
    assert seconds_us("x", 0.1 + 0.2, lowest=0) == 300_000
    assert seconds_us("x", 3, lowest=0) == 3_000_000
    with pytest.raises(InvalidRequest, match=r"at least 0\.001"):
        seconds_us("x", 0.0009, lowest=0.001)


def test_moments() -> None:
    assert moment_us("x", -5) == -5
    assert moment_us("x", 1.5) == 1_500_000
    assert moment_us("x", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == SECOND
    for wrong in (None, True, INFINITE, NAN, 2**62 + 1, "1"):
        with pytest.raises(InvalidRequest, match="x is unix microseconds"):
            moment_us("x", wrong)


@pytest.mark.parametrize("indexes", [[], [2], [2, 0], range(1, 4), range(0, 4, 2), range(3, 4)])
def test_some_of_a_batch_are_a_batch(indexes: Sequence[int]) -> None:
    given = [Message(b"%d" % n, b"k%d" % n, {"h": b"%d" % n}, timestamp=NOW + n) for n in range(4)]
    part = check_all(given).chosen(indexes)
    expected = [given[index] for index in indexes]
    assert list(part.values) == [message.value for message in expected]
    assert list(part.keys or ()) == [message.key for message in expected]
    assert list(part.headers or ()) == [message.headers for message in expected]
    assert list(part.timestamps or ()) == [message.timestamp for message in expected]
    assert part.bytes == 5 * len(expected)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("is_same", [True, False])
def test_headers_that_somebody_changes_meanwhile_are_stored_as_they_were(
    monkeypatch: pytest.MonkeyPatch, count: int, is_same: bool
) -> None:
    own = [{"a": b"1", "b": b"%d" % (0 if is_same else i)} for i in range(count)]
    given = [own[0] if is_same else each for each in own]
    joined = columns._joined_dicts

    def changed(headers: Sequence[Any]) -> Any:
        # What another thread may do between any two lines.
        for each in given:
            each.pop("b", None)
        return joined(headers)

    monkeypatch.setattr(columns, "_joined_dicts", changed)
    batch = check_all([Message(b"v", headers=each) for each in given])
    expected = [{"a": b"1", "b": b"%d" % (0 if is_same else i)} for i in range(count)]
    assert list(encode(**batch.columns(NOW)).headers()) == expected
    assert list(encode(**batch.chosen(range(count)).columns(NOW)).headers()) == expected


class Once:
    """A mapping, as far as that has items, of which there are some only once."""

    def __init__(self, **items: Any) -> None:
        self._items = items

    def items(self) -> Any:
        return iter(self._items.items())


def test_headers_are_walked_over_once() -> None:
    headers: Any = Once(a=b"1")
    assert check_all([Message(b"v", headers=headers)]).headers == [{"a": b"1"}]
    wrong: Any = Once(a="1")
    with pytest.raises(InvalidRequest, match="header 'a' is a str where bytes belong"):
        check_all([Message(b"v", headers=wrong)])
