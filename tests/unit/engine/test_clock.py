"""Clocks that are set while the queue is open, or while it is closed."""

import logging

import pytest
from unit.engine.store import Store, drain

HOUR_S = 3600.0


@pytest.mark.parametrize("jump", [HOUR_S, -HOUR_S, 10 * 365 * 24 * HOUR_S])
def test_a_jump_changes_nothing_while_open(store: Store, jump: float) -> None:
    queue = store.queue()
    queue.put(b"leased")
    message = queue.get()
    assert message is not None
    queue.put(b"mortal", ttl=10)
    queue.put(b"once", dedup_id="x", ttl=10)
    queue.put(b"delayed", delay=10)
    store.clock.jump(jump)
    store.pass_time(0)
    assert queue.put(b"again", dedup_id="x").duplicate
    assert [m.value for m in queue.get_many(5)] == [b"mortal", b"once"]
    assert queue.stats().delayed == 1
    message.ack()
    store.pass_time(10)
    assert drain(queue) == [b"delayed"]
    store.pass_time(20)
    assert queue.get() is None


@pytest.mark.parametrize("jump", [HOUR_S, -HOUR_S])
def test_a_lease_ends_on_time_whatever_the_clock_says(store: Store, jump: float) -> None:
    queue = store.queue()
    queue.put(b"x")
    queue.get()
    store.clock.jump(jump)
    store.clock.advance(29)
    assert queue.get() is None
    store.clock.advance(1)
    assert queue.get() is not None


@pytest.mark.parametrize("jump", [HOUR_S, -HOUR_S])
def test_a_moment_means_the_clock_as_it_is_set_now(store: Store, jump: float) -> None:
    queue = store.queue()
    store.clock.jump(jump)
    queue.put(b"x", deliver_at=store.clock.now_us() + 10_000_000)
    store.pass_time(9.9)
    assert queue.get() is None
    store.pass_time(0.1)
    assert drain(queue) == [b"x"]


def test_a_jump_is_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        store.clock.jump(0.5)
        store.pass_time(1)
        assert caplog.text == ""
        store.clock.jump(HOUR_S)
        store.pass_time(1)
        store.pass_time(1)
    assert caplog.text.count("clock was set by +3600") == 1


def test_wall_time_counts_after_reopening(store: Store) -> None:
    queue = store.queue()
    queue.put(b"mortal", ttl=60)
    queue.put(b"delayed", delay=60)
    store.engine.close()
    store.clock.jump(HOUR_S)
    store.open_again(store.disk)
    assert drain(store.queue()) == [b"delayed"]


def test_a_clock_that_was_set_back_while_closed(store: Store) -> None:
    queue = store.queue()
    queue.put(b"1")
    queue.put(b"released", delay=5)
    store.pass_time(5)
    store.engine.close()
    store.clock.jump(-HOUR_S)
    store.open_again(store.disk)
    queue = store.queue()
    assert drain(queue) == [b"1", b"released"]
    queue.put(b"2")
    queue.put(b"3", delay=5)
    store.pass_time(5)
    assert drain(queue) == [b"2", b"3"]
    assert queue.get() is None


def test_leases_end_even_if_the_clock_was_set_back_while_closed(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    queue.get()
    store.engine.close()
    store.clock.jump(-HOUR_S)
    store.open_again(store.disk)
    store.pass_time(HOUR_S + 30)
    assert drain(store.queue()) == [b"x"]
