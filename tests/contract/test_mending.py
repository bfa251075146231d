"""Dead letters by reason, mended and sent back, or taken out; delayed messages by when they are due."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.wrong import mistakes

import quivermq
from quivermq.server import answers


def values(messages: Any) -> list[bytes]:
    return [message.value for message in messages]


def reasons(orders: Any) -> list[tuple[str, str, str, int]]:
    return list(map(tuple, orders.dead_letter_reasons()))


def test_dead_letters_are_counted_by_reason(dead: Callable[..., Any]) -> None:
    dead(b"a", reason="no address")
    dead(b"b", b"c", reason="<b>timeout</b>")
    orders = dead(b"d", reason="no address")
    dead(b"e", reason="no address")
    expected = [("no address", "orders", "billing", 3), ("<b>timeout</b>", "orders", "billing", 2)]
    assert reasons(orders) == expected
    assert isinstance(orders.dead_letter_reasons()[0], quivermq.DeadLetterReason)
    assert orders.redrive(limit=1) == 1
    assert [reason[3] for reason in reasons(orders)] == [2, 2]
    orders.discard()
    assert reasons(orders) == []


def test_counting_goes_on_however_little_one_call_looks_at(
    dead: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_SEARCHED_BYTES", 1)
    dead(b"a", reason="x")
    dead(b"b", reason="y")
    orders = dead(b"c", b"d", reason="x")
    assert reasons(orders) == [("x", "orders", "billing", 3), ("y", "orders", "billing", 1)]
    assert len(orders.dead_letters()) == 4


def test_what_somebody_put_among_the_dead_letters_counts_too(mq: Any) -> None:
    mq.queue("orders.dlq").put(b"by hand")
    assert reasons(mq.queue("orders")) == [("", "orders", "", 1)]
    assert reasons(mq.queue("orders.dlq")) == [("", "orders", "", 1)]


def test_a_topic_without_dead_letters_has_no_reasons(mq: Any) -> None:
    assert mq.queue("never").dead_letter_reasons() == []
    mq.create_topic("empty")
    assert mq.queue("empty").dead_letter_reasons() == []


def test_a_dead_letter_goes_back_mended(orders: Any) -> None:
    orders.put(b"wrng", key=b"k", headers={"a": b"1"}, priority="high", timestamp=1_900_000_000.0)
    orders.put(b"right")
    orders.reject(orders.get_many(2), "never")
    letters = {letter.value: letter.id for letter in orders.dead_letters()}
    mended = quivermq.Message(b"wrong\xff", key=b"k2", headers={"b": b"\xff", "quiver-dlq-reason": b"?"})
    assert orders.redrive(edits={letters[b"wrng"]: mended}) == 1
    assert values(orders.dead_letters()) == [b"right"]
    message = orders.get()
    assert (message.value, message.key, message.headers) == (b"wrong\xff", b"k2", {"b": b"\xff"})
    assert (message.priority, message.timestamp, message.attempt) == ("high", 1_900_000_000_000_000, 1)
    assert orders.redrive(edits={letters[b"wrng"]: mended}) == 0


def test_some_go_back_mended_and_some_as_they_were(dead: Callable[..., Any]) -> None:
    orders = dead(b"a", b"b", b"c", b"d")
    ids = {letter.value: letter.id for letter in orders.dead_letters()}
    edits = {ids[b"b"]: quivermq.Message(b"B"), ids[b"c"]: quivermq.Message(b"C")}
    assert orders.redrive(ids=[ids[b"a"], ids[b"b"]], edits=edits) == 2
    assert sorted(values(orders.get_many(9))) == [b"B", b"a"]
    assert orders.redrive(lambda letter: letter.value == b"c", edits=edits) == 1
    assert values(orders.get_many(9)) == [b"C"]
    assert orders.redrive(edits={}) == 0
    assert values(orders.dead_letters()) == [b"d"]


def test_what_its_topic_does_not_take_stays_where_it_is(mq: Any, orders: Any) -> None:
    mq.create_topic("orders", message_bytes_max=100)
    orders.put_many([b"a", b"b"])
    orders.reject(orders.get_many(2))
    letters = orders.dead_letters()
    large = {letters[1].id: quivermq.Message(b"x" * 101)}
    with pytest.raises(quivermq.MessageTooLarge):
        orders.redrive(edits=large)
    assert values(orders.dead_letters()) == [b"a", b"b"]
    assert orders.get() is None


def test_ids_choose_what_is_taken_out(dead: Callable[..., Any]) -> None:
    orders = dead(b"a", b"b", b"c")
    ids = {letter.value: letter.id for letter in orders.dead_letters()}
    assert orders.discard(ids=[]) == 0
    assert orders.discard(ids=[ids[b"b"], "0-1-99", "no id"]) == 1
    assert orders.discard(lambda letter: letter.value == b"a", ids=[ids[b"a"], ids[b"c"]]) == 1
    assert values(orders.dead_letters()) == [b"c"]


WRONG: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda q: q.redrive(edits=[]), quivermq.InvalidRequest),
    (lambda q: q.redrive(edits={1: quivermq.Message(b"")}), quivermq.InvalidRequest),
    (lambda q: q.redrive(edits={"0-1-0": b"bytes"}), quivermq.InvalidRequest),
    (lambda q: q.redrive(edits={"0-1-0": quivermq.Message(b"", delay=5)}), quivermq.InvalidRequest),
    (lambda q: q.redrive(edits={"0-1-0": quivermq.Message(b"", partition=1)}), quivermq.InvalidRequest),
    (lambda q: q.redrive(edits={"0-1-0": quivermq.Message("text")}), quivermq.InvalidRequest),  # type: ignore[arg-type]
    (lambda q: q.discard(ids="0-1-0"), quivermq.InvalidRequest),
    (lambda q: q.timeline(bins=0), quivermq.InvalidRequest),
    (lambda q: q.timeline("soon"), quivermq.InvalidRequest),
]


def test_what_is_wrong_is_named(dead: Callable[..., Any]) -> None:
    orders = dead(b"x")
    assert mistakes(WRONG, orders) == []
    assert values(orders.dead_letters()) == [b"x"]


@pytest.mark.parametrize("name", ["dead_letter_reasons", "timeline"])
def test_a_pattern_is_not_looked_at(mq: Any, name: str) -> None:
    with pytest.raises(quivermq.InvalidName):
        getattr(mq.queue("events.*"), name)()


def test_a_timeline_tells_how_much_is_due_when(orders: Any) -> None:
    hours = [1, 1, 2, 30, 2000]
    now = datetime.now(UTC)
    puts = [orders.put(b"x", deliver_at=now + timedelta(hours=each, minutes=1)) for each in hours]
    two_days = orders.timeline(now + timedelta(hours=48), bins=48)
    assert isinstance(two_days, quivermq.Timeline)
    assert (len(two_days.counts), sum(two_days.counts), two_days.later) == (48, 4, 1)
    assert [hour for hour, count in enumerate(two_days.counts) if count] == [1, 2, 30]
    orders.cancel(puts[0].scheduled_id)
    everything = orders.timeline()
    assert (len(everything.counts), everything.later) == (60, 0)
    assert (everything.counts[0], everything.counts[-1], sum(everything.counts)) == (3, 1, 4)
    assert everything.end > everything.start


def test_nothing_is_due_where_nothing_waits(mq: Any, orders: Any) -> None:
    assert orders.timeline(bins=3)[2:] == ([0, 0, 0], 0)
    mq.create_topic("orders")
    assert orders.timeline(bins=3)[2:] == ([0, 0, 0], 0)
