"""Messages that are given back: what is journalled, and generators that are closed at the worst moment."""

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.threads import PATIENCE_S, wait_until
from unit.engine.store import Store

import quivermq
from quivermq.engine import engine_of


def attempts(queue: quivermq.Queue) -> list[tuple[bytes, int]]:
    return [(message.value, message.attempt) for message in queue.get_many(100)]


@pytest.mark.parametrize("again", ["reopen", "kill", "compact"])
def test_attempts_are_right_after_a_restart(store: Store, again: str) -> None:
    queue = store.queue(attempts_max=5, durability="fsync")
    queue.put_many([b"first", b"second"])
    for _ in range(2):
        for message in queue.get_many(2):
            if message.value == b"second":
                message.nack(delay=0)
            else:
                message.release()
    for message in queue.get_many(2):
        message.release()
    if again == "compact":
        store.engine.compact()
    getattr(store, "reopen" if again == "compact" else again)()
    stats = store.queue().stats()
    assert (stats.pending, stats.retrying, stats.in_flight) == (1, 1, 0)
    assert attempts(store.queue()) == [(b"first", 1), (b"second", 3)]


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_released_message_keeps_its_place_before_another_lane_of_its_key(
    store: Store, is_reopened: bool
) -> None:
    queue = store.queue(ordering="key")
    queue.put(b"1", key=b"k", priority="low")
    first = queue.get()
    assert first is not None
    queue.put(b"2", key=b"k", priority="high")
    assert queue.get() is None
    assert queue.stats().waiting_for_key == 1
    first.release()
    if is_reopened:
        store.reopen()
        queue = store.queue()
    for value in (b"1", b"2"):
        message = queue.get()
        assert message is not None
        assert (message.value, message.attempt) == (value, 1)
        message.ack()


def test_an_attempt_of_another_queue_is_not_forgotten(store: Store) -> None:
    queue = store.queue(attempts_max=9)
    queue.put(b"x")
    tried = quivermq.Progress(0, [quivermq.Tried(0, 1, 4)])
    store.engine.adopt("orders", "default", tried)
    for _ in range(2):
        message = queue.get()
        assert message is not None
        assert message.attempt == 5
        message.release()
    store.reopen()
    assert attempts(store.queue()) == [(b"x", 5)]


def test_whoever_waits_is_woken(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    rung: list[bool] = []
    watch = engine_of(store.engine).queue("orders").watch(lambda: rung.append(True))
    message.release()
    watch.leave()
    assert rung == [True]


def test_releases_are_counted(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2", b"3"])
    queue.release(queue.get_many(2))
    counted = {sample["name"]: sample.get("value") for sample in engine_of(store.engine).collect_metrics()}
    assert counted["quiver_messages_released_total"] == 2
    assert counted["quiver_messages_nacked_total"] == 0


def test_a_release_that_the_disk_refuses_is_told(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    store.disk.fill_after(0)
    with pytest.raises(quivermq.DiskFull):
        message.release()
    assert not message.is_settled
    store.disk.fill_after(None)
    message.release()
    assert attempts(queue) == [(b"x", 1)]


def forgotten(begin: Callable[[], Iterator[Any]]) -> None:
    """Begin a generator, and leave it to the garbage collector."""
    box: list[Any] = [begin()]
    next(box[0])
    box.append(box)


@pytest.mark.parametrize("how", ["stream", "process"])
@pytest.mark.parametrize("call", ["put", "get", "ack", "nack", "release"])
def test_a_generator_that_is_collected_in_the_middle_of_a_call(store: Store, how: str, call: str) -> None:
    """The clock is asked while locks are held: whatever is collected then must not wait for them."""
    queue = store.queue()
    queue.put_many([b"%d" % number for number in range(4)])
    message = queue.get()
    assert message is not None

    def processed() -> Iterator[object]:
        with queue.process() as taken:
            yield taken

    forgotten(lambda: queue.stream(prefetch=2) if how == "stream" else processed())
    advance, collected = store.clock.monotonic, list[bool]()

    def monotonic() -> float:
        if not collected:
            collected.append(True)
            gc.collect()
        return advance()

    store.clock.monotonic = monotonic  # type: ignore[method-assign]
    acts: dict[str, Callable[[], object]] = {
        "put": lambda: queue.put(b"5", ttl=60),
        "get": queue.get,
        "ack": message.ack,
        "nack": message.nack,
        "release": message.release,
    }
    thread = threading.Thread(target=acts[call], daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it waits for itself"
    assert collected
    held = 2 if call == "get" else call == "put"
    # The thread of the stream may be who collects it.
    wait_until(lambda: queue.stats().in_flight == held)
    assert {message.attempt for message in queue.get_many(10)} == {1}
