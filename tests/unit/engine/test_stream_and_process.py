"""Processing and streaming: acks, nacks, and leases that are renewed while the handler runs."""

import logging
from collections.abc import Callable

import pytest
from unit.engine.store import Store, drain

import quivermq


class HandlerError(Exception):
    pass


def test_a_block_that_ends_acks(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    with queue.process() as message:
        assert message is not None
        assert message.value == b"x"
        assert queue.stats().in_flight == 1
    assert queue.stats().backlog == 0


def test_a_block_that_raises_nacks(store: Store) -> None:
    queue = store.queue(attempts_max=1)
    queue.put(b"x")
    with pytest.raises(HandlerError, match="no"), queue.process():
        raise HandlerError("no")
    [letter] = queue.dead_letters()
    assert (letter.reason, letter.error) == ("HandlerError", "HandlerError: no")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_is_interrupted_releases(store: Store, error: type[BaseException]) -> None:
    queue = store.queue()
    queue.put(b"x")
    with pytest.raises(error), queue.process():
        raise error
    stats = queue.stats()
    assert (stats.pending, stats.in_flight, stats.retrying) == (1, 0, 0)


def test_an_error_backs_off(store: Store) -> None:
    queue = store.queue(backoff_ms=1000)
    queue.put(b"x")
    with pytest.raises(HandlerError), queue.process():
        raise HandlerError
    assert queue.get() is None
    store.pass_time(1)
    with queue.process() as message:
        assert message is not None
        assert message.attempt == 2


def test_a_block_without_a_message(store: Store) -> None:
    with store.queue().process(timeout=0) as message:
        assert message is None
    with pytest.raises(HandlerError), store.queue().process(timeout=0):
        raise HandlerError


@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
def test_what_the_block_settled_itself_stays_so(store: Store, settle: str) -> None:
    queue = store.queue()
    queue.put(b"x")
    with queue.process() as message:
        assert message is not None
        getattr(message, settle)()
    stats = queue.stats()
    assert (stats.in_flight, stats.retrying, stats.dead_letters) == (
        0,
        settle == "nack",
        settle == "reject",
    )


def test_what_the_block_settled_through_the_queue_stays_so(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2"])
    with queue.process() as message:
        assert message is not None
        queue.nack([message], delay=0)

    def fail() -> None:
        with queue.process() as message:
            assert message is not None
            queue.reject(message)
            raise HandlerError

    with pytest.raises(HandlerError):
        fail()
    assert len(queue.dead_letters()) == 1
    assert drain(queue) == [b"2"]


def run_for(store: Store, seconds: float, step: float = 1) -> None:
    """Let a handler take its time."""
    passed = 0.0
    while passed < seconds:
        store.pass_time(step)
        passed += step


@pytest.mark.parametrize("lease", [None, 6, 600])
def test_a_block_keeps_its_lease(store: Store, lease: float | None) -> None:
    queue = store.queue(lease_ms=6000)
    queue.put(b"x")
    with queue.process(lease=lease) as message:
        assert message is not None
        run_for(store, 100)
        assert queue.get() is None
    assert queue.stats().backlog == 0
    assert queue.dead_letters() == []


def test_a_stream_keeps_its_lease(store: Store) -> None:
    queue = store.queue(lease_ms=6000)
    queue.put_many([b"1", b"2"])
    for _ in queue.stream(timeout=0):
        run_for(store, 50)
        assert store.queue().stats().in_flight == 1
    assert queue.stats().backlog == 0


def test_a_lease_that_changed_is_kept_as_well(store: Store) -> None:
    queue = store.queue(lease_ms=60_000)
    queue.put_many([b"1", b"2"])
    with queue.process() as message:
        assert message is not None
        store.engine.alter_topic("orders", lease_ms=3000)
        with queue.process() as other:
            assert other is not None
            run_for(store, 100, step=0.5)
    assert queue.stats().backlog == 0


def test_nothing_is_renewed_after_the_block(store: Store) -> None:
    queue = store.queue(lease_ms=6000)
    queue.put(b"x")
    with queue.process() as message:
        assert message is not None
    journal = {path: data for path, data in store.files().items() if "groups" in path.parts}
    run_for(store, 60)
    assert journal == {path: data for path, data in store.files().items() if "groups" in path.parts}


def test_the_timers_of_renewals_do_not_pile_up(store: Store) -> None:
    queue = store.queue(lease_ms=3000)
    queue.put_many([b"x"] * 60)
    most = 0
    with queue.process(lease=300):
        for _ in range(50):
            with queue.process() as message:
                assert message is not None
                run_for(store, 1.1, step=1.1)
            most = max(most, len(store.scheduler._calls))
    assert most < 15


def test_a_lease_that_is_lost_is_told_at_the_end(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    queue = store.queue(lease_ms=6000)
    queue.put(b"x")

    def sleep() -> None:
        with queue.process(), caplog.at_level(logging.WARNING):
            # No timer ran in time.
            store.clock.advance(100)
            store.pass_time(0)

    with pytest.raises(quivermq.LeaseExpired):
        sleep()
    assert "could not renew" in caplog.text
    store.pass_time(10)
    assert drain(queue) == [b"x"]


def test_the_error_of_a_handler_is_not_hidden_by_a_lost_lease(store: Store) -> None:
    queue = store.queue(lease_ms=6000)
    queue.put(b"x")

    def fail() -> None:
        with queue.process():
            store.clock.advance(100)
            raise HandlerError

    with pytest.raises(HandlerError):
        fail()


def test_the_error_of_a_handler_is_not_hidden_by_a_close(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")

    def fail() -> None:
        with queue.process():
            store.engine.close()
            raise HandlerError

    with pytest.raises(HandlerError):
        fail()


def test_a_stream_acks_as_it_advances(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2", b"3"])
    seen = []
    for message in queue.stream(timeout=0):
        seen.append(message.value)
        assert queue.stats().backlog == 4 - len(seen)
    assert seen == [b"1", b"2", b"3"]
    assert queue.stats().backlog == 0


def test_a_stream_that_is_left_gives_the_message_back_at_once(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2"])
    for message in queue.stream():
        assert message.value == b"1"
        break
    again = queue.get()
    assert again is not None
    assert (again.value, again.attempt) == (b"1", 1)


def test_a_stream_that_is_left_by_an_error(store: Store) -> None:
    queue = store.queue()
    queue.put(b"1")
    stream = queue.stream()

    def fail() -> None:
        for _ in stream:
            raise HandlerError

    with pytest.raises(HandlerError):
        fail()
    stream.close()
    assert drain(queue) == [b"1"]


def test_a_stream_that_was_never_begun(store: Store) -> None:
    queue = store.queue()
    queue.put(b"1")
    stream = queue.stream()
    assert queue.stats().in_flight == 0
    del stream
    assert drain(queue) == [b"1"]


def test_a_stream_that_is_left_after_its_lease_is_quiet(store: Store) -> None:
    queue = store.queue()
    queue.put(b"1")
    for _ in queue.stream():
        queue.seek("latest")
        break
    assert queue.stats().backlog == 0


def test_a_stream_that_is_left_after_the_close_is_quiet(store: Store) -> None:
    queue = store.queue()
    queue.put(b"1")
    for _ in queue.stream():
        store.engine.close()
        break
    assert drain(store.open_again(store.disk).queue("orders")) == [b"1"]


def test_a_stream_goes_on_after_settling_by_hand(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2", b"3"])
    for message in queue.stream(timeout=0):
        if message.value == b"2":
            message.reject("no")
        elif message.value == b"3":
            queue.ack([message])
    assert queue.stats().backlog == 0
    assert len(queue.dead_letters()) == 1


def test_two_streams_share_the_work(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"%d" % n for n in range(10)])
    one, two = queue.stream(timeout=0), store.queue().stream(timeout=0)
    seen = [message.value for pair in zip(one, two, strict=False) for message in pair]
    assert sorted(seen) == [b"%d" % n for n in range(10)]


def test_a_stream_sees_what_comes_while_it_runs(store: Store) -> None:
    queue = store.queue()
    queue.put(b"0")
    seen = []
    for message in queue.stream(timeout=0):
        seen.append(message.value)
        if len(seen) < 5:
            queue.put(b"%d" % len(seen))
    assert seen == [b"%d" % n for n in range(5)]


@pytest.mark.parametrize("how", ["process", "stream"])
def test_a_message_whose_lease_cannot_be_kept_goes_back(
    store: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = store.queue()
    queue.put(b"x")

    def fail(*_: object) -> None:
        raise quivermq.TopicNotFound("gone")

    monkeypatch.setattr(store.engine._renewer, "hold", fail)
    begin: Callable[[], object] = (
        queue.process().__enter__ if how == "process" else queue.stream(timeout=0).__next__
    )
    with pytest.raises(quivermq.TopicNotFound):
        begin()
    assert (queue.stats().pending, queue.stats().in_flight) == (1, 0)
