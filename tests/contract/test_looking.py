"""Looking and moving: seek, read, peek, delayed messages, dead letters."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.wrong import mistakes

import quivermq
from quivermq.frame import OFFSET_MAX
from quivermq.model.lanes import PRIORITIES


def values(messages: Any) -> list[bytes]:
    return [message.value for message in messages]


def test_a_group_goes_on_from_elsewhere(orders: Any) -> None:
    orders.put_many([b"%d" % i for i in range(5)])
    orders.seek("latest")
    assert orders.get() is None
    orders.seek(offset=3)
    assert values(orders.get_many(9)) == [b"3", b"4"]
    orders.seek("earliest")
    assert orders.stats().pending == 5


def test_a_group_goes_on_from_a_moment(orders: Any) -> None:
    moments = [datetime(2030, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    for moment in moments:
        orders.put(b"%d" % moment.day, timestamp=moment)
    orders.seek(timestamp=moments[1])
    assert values(orders.get_many(9)) == [b"2", b"3"]
    orders.seek(timestamp=moments[2].timestamp(), partition=0, priority="normal")
    assert values(orders.get_many(9)) == [b"3"]


WRONG: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda q: q.seek(), quivermq.InvalidRequest),
    (lambda q: q.seek("middle"), quivermq.InvalidRequest),
    (lambda q: q.seek("earliest", offset=1), quivermq.InvalidRequest),
    (lambda q: q.seek(offset=7), quivermq.OffsetOutOfRange),
    (lambda q: q.seek(offset="1"), quivermq.InvalidRequest),
    (lambda q: q.seek("earliest", partition=5), quivermq.InvalidRequest),
    (lambda q: q.seek("earliest", priority="urgent"), quivermq.InvalidRequest),
    (lambda q: q.read(5), quivermq.InvalidRequest),
    (lambda q: q.read(start=7), quivermq.OffsetOutOfRange),
    (lambda q: q.read(start=OFFSET_MAX), quivermq.OffsetOutOfRange),
    (lambda q: q.read(start=-1), quivermq.InvalidRequest),
    (lambda q: q.read(limit=-1), quivermq.InvalidRequest),
    (lambda q: q.read(priority="urgent"), quivermq.InvalidRequest),
    (lambda q: q.read(priority=memoryview(b"abcd").cast("H")), quivermq.InvalidRequest),
    (lambda q: q.peek(-1), quivermq.InvalidRequest),
    (lambda q: q.dead_letters(-1), quivermq.InvalidRequest),
    (lambda q: q.redrive(5), quivermq.InvalidRequest),
    (lambda q: q.redrive(ids="0-1-0"), quivermq.InvalidRequest),
    (lambda q: q.redrive(ids=[0]), quivermq.InvalidRequest),
    (lambda q: q.discard(limit="all"), quivermq.InvalidRequest),
    (lambda q: q.scheduled(-1), quivermq.InvalidRequest),
]


def test_what_is_wrong_is_named(orders: Any) -> None:
    orders.put(b"x")
    assert mistakes(WRONG, orders) == []
    assert orders.stats().pending == 1


def test_an_offset_out_of_range_tells_the_range(orders: Any) -> None:
    orders.put_many([b"a", b"b"])
    with pytest.raises(quivermq.OffsetOutOfRange) as caught:
        orders.read(start=9)
    assert (caught.value.offset, caught.value.start, caught.value.end) == (9, 0, 2)


@pytest.mark.parametrize("name", ["seek", "read", "peek"])
def test_there_has_to_be_a_topic_to_look_at(orders: Any, name: str) -> None:
    calls = {"seek": lambda: orders.seek("earliest"), "read": orders.read, "peek": orders.peek}
    with pytest.raises(quivermq.TopicNotFound):
        calls[name]()


@pytest.mark.parametrize(
    "name", ["seek", "read", "peek", "dead_letters", "redrive", "discard", "scheduled", "cancel"]
)
def test_a_pattern_is_not_looked_at(mq: Any, name: str) -> None:
    events = mq.queue("events.*")
    arguments = {"seek": ["earliest"], "cancel": ["1-1-1"]}.get(name, [])
    with pytest.raises(quivermq.InvalidName):
        getattr(events, name)(*arguments)


def test_reading_touches_nothing(orders: Any) -> None:
    orders.put_many([b"a", b"b", b"c"])
    orders.get()
    assert values(orders.read(start=1, limit=1)) == [b"b"]
    assert values(orders.read()) == [b"a", b"b", b"c"]
    assert orders.read(start=3) == []
    assert orders.read(limit=0) == []
    assert orders.read(priority="low") == []
    assert values(orders.peek(5)) == [b"b", b"c"]
    assert values(orders.peek()) == [b"b"]
    assert orders.peek(0) == []
    assert orders.stats().pending == 2


def test_a_delayed_message_waits_and_can_be_cancelled(orders: Any) -> None:
    put = orders.put(b"later", delay=600, key=b"k", headers={"a": b"\xff"}, priority="low", dedup_id="x")
    assert (put.offset, put.duplicate) == (None, False)
    later = orders.put(b"much later", deliver_at=datetime.now(UTC) + timedelta(days=9))
    assert orders.get() is None
    first, second = orders.scheduled()
    assert isinstance(first, quivermq.Scheduled)
    assert (first.id, first.value, first.key) == (put.scheduled_id, b"later", b"k")
    assert (first.headers, first.priority, first.dedup_id) == ({"a": b"\xff"}, "low", "x")
    assert second.id == later.scheduled_id
    assert second.deliver_at > first.deliver_at
    assert [s.id for s in orders.scheduled(1)] == [put.scheduled_id]
    assert orders.scheduled(0) == []
    assert orders.stats().delayed == 2
    assert orders.cancel(put.scheduled_id) is True
    assert orders.cancel(put.scheduled_id) is False
    assert [s.id for s in orders.scheduled()] == [later.scheduled_id]


# More than a broker cancels in one call.
@pytest.mark.parametrize("count", [1000, 1001, 2500])
def test_many_delayed_messages_are_cancelled_at_once(orders: Any, count: int) -> None:
    puts = orders.put_many([quivermq.Message(b"later", delay=600) for _ in range(count)])
    ids = [put.scheduled_id for put in puts]
    kept = orders.put(b"kept", delay=600).scheduled_id
    assert orders.cancel_many([*ids[: count // 2], "1-1-1", *ids[count // 2 :]]) == count
    assert [each.id for each in orders.scheduled()] == [kept]
    assert orders.cancel_many(ids) == 0
    assert orders.stats().delayed == 1


def test_of_nothing_and_of_a_topic_that_is_not_there_nothing_is_cancelled(orders: Any) -> None:
    assert orders.cancel_many([]) == 0
    assert orders.cancel_many(["1-1-1"] * 1001) == 0


@pytest.mark.parametrize("wrong", ["", "x", "../..", "1-1-1", None, 5])
def test_what_does_not_wait_cannot_be_cancelled(orders: Any, wrong: Any) -> None:
    assert orders.cancel(wrong) is False
    orders.put(b"x")
    assert orders.cancel(wrong) is False


def test_a_delayed_message_comes_when_it_is_due(orders: Any) -> None:
    orders.put(b"soon", delay=0.05)
    assert orders.get(timeout=30).value == b"soon"
    assert orders.scheduled() == []


def test_a_topic_that_does_not_exist_has_nothing_to_list(orders: Any) -> None:
    assert orders.scheduled() == []
    assert orders.dead_letters() == []
    assert orders.redrive() == 0
    assert orders.discard(lambda _: True) == 0


def test_a_dead_letter_tells_its_story(orders: Any) -> None:
    orders.put(b"\xff", key=b"k", headers={"a": b"1"}, priority="high", timestamp=1_900_000_000.0)
    message = orders.get()
    message.reject("no good", error="trace")
    (letter,) = orders.dead_letters()
    assert isinstance(letter, quivermq.DeadLetter)
    assert (letter.value, letter.key, letter.original_headers) == (b"\xff", b"k", {"a": b"1"})
    assert (letter.topic, letter.partition, letter.priority, letter.offset) == ("orders", 0, "high", 0)
    assert (letter.timestamp, letter.attempts, letter.group) == (1_900_000_000_000_000, 1, "billing")
    assert (letter.reason, letter.error) == ("no good", "trace")
    assert letter.headers["quiver-dlq-reason"] == b"no good"
    assert letter.time > 0


def test_dead_letters_go_back(dead: Callable[..., Any]) -> None:
    orders = dead(b"a", b"b", b"c")
    assert values(orders.dead_letters(2)) == [b"a", b"b"]
    assert orders.redrive(limit=1) == 1
    assert orders.redrive() == 2
    assert orders.dead_letters() == []
    assert sorted(values(orders.get_many(9))) == [b"a", b"b", b"c"]


def test_a_function_chooses_dead_letters(dead: Callable[..., Any]) -> None:
    orders = dead(b"a", b"b", b"c", b"d")
    assert orders.redrive(lambda letter: letter.value in (b"b", b"c", b"d"), limit=2) == 2
    assert values(orders.dead_letters()) == [b"a", b"d"]
    assert orders.discard(lambda letter: letter.value == b"a") == 1
    assert orders.discard(lambda _: False) == 0
    assert orders.discard() == 1
    assert orders.dead_letters() == []
    assert values(orders.get_many(9)) == [b"b", b"c"]


def test_ids_choose_dead_letters(dead: Callable[..., Any]) -> None:
    orders = dead(b"a", b"b", b"c", b"d", b"e")
    ids = {letter.value: letter.id for letter in orders.dead_letters()}
    assert orders.redrive(ids=[]) == 0
    assert orders.redrive(ids=["0-1-999", "7-0-0", "no id", ids[b"d"], ids[b"b"], ids[b"b"]]) == 2
    assert orders.redrive(ids=[ids[b"d"]]) == 0
    assert orders.redrive(lambda letter: letter.value != b"a", ids=[ids[b"a"], ids[b"c"]]) == 1
    assert orders.redrive(ids=list(ids.values()), limit=1) == 1
    assert values(orders.dead_letters()) == [b"e"]
    assert sorted(values(orders.get_many(9))) == [b"a", b"b", b"c", b"d"]


def test_what_a_function_raises_is_raised_and_nothing_moved(dead: Callable[..., Any]) -> None:
    orders = dead(b"a")
    with pytest.raises(AttributeError):
        orders.redrive(lambda letter: letter.colour)
    assert values(orders.dead_letters()) == [b"a"]


def test_dead_letters_of_a_topic_that_is_gone_stay(mq: Any, dead: Callable[..., Any]) -> None:
    orders = dead(b"a")
    mq.delete_topic("orders")
    with pytest.raises(quivermq.TopicNotFound):
        orders.redrive()
    assert values(orders.dead_letters()) == [b"a"]


def test_lists_are_whole_however_long(mq: Any, dead: Callable[..., Any]) -> None:
    count = 2100
    mq.create_topic("orders", partitions=2)
    orders = dead(*[b"%d" % number for number in range(count)])
    assert len(orders.dead_letters()) == count
    assert len(orders.dead_letters(1500)) == 1500
    orders.put_many([quivermq.Message(b"%d" % number, delay=600) for number in range(count)])
    waiting = orders.scheduled()
    assert [int(each.value) for each in waiting] == sorted(range(count))
    assert [each.id for each in orders.scheduled(1500)] == [each.id for each in waiting][:1500]
    messages = [quivermq.Message(b"%d" % i, priority=PRIORITIES[i % 3]) for i in range(count)]
    orders.put_many(messages)
    peeked = orders.peek(10_000)
    assert sorted(int(message.value) for message in peeked) == list(range(count))
    assert orders.peek(1500) == peeked[:1500]


def test_a_range_is_a_table(mq: Any) -> None:
    mq.create_topic("wide", partitions=2)
    wide = mq.queue("wide")
    wide.put(b"a", key=b"k", headers={"h": b"\xff"}, timestamp=1_000_000, dedup_id="d", partition=0)
    wide.put(b"b", priority="high", partition=1)
    wide.put_many([quivermq.Message(b"%d" % n, partition=1) for n in range(5)])
    table = wide.to_arrow()
    assert table.column("value").to_pylist() == [b"a", b"b", b"0", b"1", b"2", b"3", b"4"]
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["key"], first["dedup_id"]) == (b"k", "d")
    assert first["headers"] == [{"key": "h", "value": b"\xff"}]
    assert first["timestamp"] == datetime.fromtimestamp(1, UTC)
    assert table.schema.names[:6] == ["key", "value", "topic", "partition", "priority", "offset"]

    def found(*arguments: Any, **named: Any) -> Any:
        return wide.to_arrow(*arguments, **named).column("value").to_pylist()

    assert found(1, 1, 3, priority="normal") == [b"1", b"2"]
    assert found(1, limit=2) == [b"b", b"0"]
    assert found(0, start=1) == found(0, 99) == found(limit=0) == found(1, 3, 2, priority="normal") == []
    assert list(wide.to_pandas(1, priority="high")["value"]) == [b"b"]
    assert wide.to_arrow(limit=0).schema == table.schema
    with pytest.raises(quivermq.InvalidRequest):
        wide.to_arrow(priority="urgent")
    with pytest.raises(quivermq.TopicNotFound):
        mq.queue("nothing").to_arrow()
