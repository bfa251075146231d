"""Time to live: what expired is never delivered, and becomes a dead letter where the topic says so."""

from typing import Any

import pytest
from unit.engine.store import Store, drain, values

import quivermq


def test_an_expired_message_is_never_delivered(store: Store) -> None:
    queue = store.queue()
    queue.put(b"mortal", ttl=5)
    queue.put(b"immortal")
    store.clock.advance(5)
    assert drain(queue) == [b"immortal"]
    assert queue.dead_letters() == []
    assert queue.stats().backlog == 0


def test_a_message_lives_until_its_last_moment(store: Store) -> None:
    queue = store.queue()
    queue.put(b"mortal", ttl=5)
    store.clock.advance(4.999_999)
    assert drain(queue) == [b"mortal"]


@pytest.mark.parametrize("put", ["plain", "rich", "many", "messages"])
def test_a_topic_may_give_all_of_its_messages_a_ttl(store: Store, put: str) -> None:
    queue = store.queue(ttl_ms=5000)
    if put == "plain":
        queue.put(b"x")
    elif put == "rich":
        queue.put(b"x", key=b"k")
    else:
        queue.put_many([b"x", b"x"] if put == "many" else [quivermq.Message(b"x"), b"x"])
    queue.put(b"longer", ttl=10)
    store.clock.advance(5)
    assert drain(queue) == [b"longer"]


def test_the_ttl_of_a_topic_changes_while_running(store: Store) -> None:
    queue = store.queue()
    queue.put(b"before")
    store.engine.alter_topic("orders", ttl_ms=1000)
    queue.put(b"mortal")
    queue.put_many([b"mortal"])
    store.engine.alter_topic("orders", ttl_ms=None)
    queue.put(b"after")
    store.clock.advance(2)
    assert drain(queue) == [b"before", b"after"]


def test_the_ttl_of_a_delayed_message_counts_from_its_due_time(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x", delay=10, ttl=5)
    queue.put(b"y", delay=10, ttl=5)
    store.pass_time(14.9)
    message = queue.get()
    assert message is not None
    message.ack()
    store.pass_time(0.1)
    assert queue.get() is None


def test_the_ttl_of_a_topic_counts_for_delayed_messages_too(store: Store) -> None:
    queue = store.queue(ttl_ms=5000)
    queue.put(b"x", delay=10)
    store.pass_time(12)
    assert drain(queue) == [b"x"]


def test_a_message_that_expires_in_flight_can_be_acked(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x", ttl=5)
    message = queue.get()
    assert message is not None
    store.clock.advance(10)
    message.ack()
    assert queue.stats().backlog == 0


@pytest.mark.parametrize("way", ["nack", "lease"])
def test_a_message_that_expires_while_it_waits_is_not_tried_again(store: Store, way: str) -> None:
    queue = store.queue(lease_ms=6000)
    queue.put(b"x", ttl=5)
    message = queue.get()
    assert message is not None
    if way == "nack":
        message.nack(delay=6)
    store.pass_time(6)
    assert queue.get() is None
    assert queue.stats().backlog == 0
    assert queue.dead_letters() == []


@pytest.mark.parametrize("way", ["fresh", "retry", "lease", "pop", "many"])
def test_an_expired_message_becomes_a_dead_letter_where_the_topic_says_so(store: Store, way: str) -> None:
    queue = store.queue(dead_letter_expired=True, lease_ms=6000)
    queue.put(b"x", ttl=5, key=b"k", headers={"h": b"1"})
    attempts = 0
    if way in {"retry", "lease"}:
        message = queue.get()
        assert message is not None
        attempts = 1
        if way == "retry":
            message.nack(delay=1)
    store.pass_time(6)
    look: Any = {"pop": queue.pop, "many": lambda: queue.get_many(5) or None}.get(way, queue.get)
    assert look() is None
    [letter] = queue.dead_letters()
    assert (letter.value, letter.key, letter.original_headers) == (b"x", b"k", {"h": b"1"})
    assert (letter.reason, letter.attempts) == ("expired", attempts)
    assert queue.stats().backlog == 0
    for _ in range(3):
        store.pass_time(10)
        assert queue.get() is None
    assert len(queue.dead_letters()) == 1


def test_each_group_that_finds_it_expired_has_its_dead_letter(store: Store) -> None:
    store.queue(dead_letter_expired=True).put(b"x", ttl=5)
    store.pass_time(6)
    for group in ("a", "b"):
        assert store.queue(group=group).get() is None
    assert sorted(letter.group for letter in store.queue().dead_letters()) == ["a", "b"]


def test_a_redriven_dead_letter_does_not_expire_again_at_once(store: Store) -> None:
    queue = store.queue(dead_letter_expired=True)
    queue.put(b"x", ttl=5)
    store.pass_time(6)
    queue.get()
    assert queue.redrive() == 1
    assert drain(queue) == [b"x"]


def test_a_ttl_survives_reopening(store: Store) -> None:
    store.queue().put_many([quivermq.Message(b"short", ttl=5), quivermq.Message(b"long", ttl=500)])
    store.reopen()
    store.clock.advance(10)
    assert drain(store.queue()) == [b"long"]


def test_reading_shows_when_a_message_expires(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x", ttl=5)
    assert queue.read()[0].expires_at == store.clock.now_us() + 5_000_000
    message = queue.get()
    assert message is not None
    assert message.expires_at == store.clock.now_us() + 5_000_000
    store.clock.advance(10)
    assert values(queue.read()) == [b"x"]


def test_a_long_run_of_expired_messages_is_passed_over(store: Store) -> None:
    queue = store.queue(durability="os")
    queue.put_many([quivermq.Message(b"x", ttl=1)] * 5000)
    queue.put(b"y")
    store.clock.advance(1)
    message = queue.get()
    assert message is not None
    assert message.value == b"y"


def test_the_smallest_and_the_greatest_ttl(store: Store) -> None:
    queue = store.queue()
    queue.put(b"a", ttl=0.000_001)
    queue.put(b"b", ttl=10**9)
    store.clock.advance(0.001)
    assert drain(queue) == [b"b"]


def test_an_expired_retry_hides_no_other(store: Store) -> None:
    queue = store.queue()
    queue.put_many([quivermq.Message(b"mortal", ttl=5), b"other"])
    queue.nack(queue.get_many(2), delay=6)
    store.clock.advance(6)
    message = queue.get()
    assert message is not None, "there is a message that is due, but it was not found"
    assert message.value == b"other"
