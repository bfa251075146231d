"""A producer that begins anew, and what is kept of it."""

import pytest
from support.queues import START_US
from unit.engine.store import Store, refused

import quivermq
from quivermq import FirstFrame, ProducerState
from quivermq.engine import engine_of
from quivermq.frame import encode
from quivermq.topic import producers, state_log
from quivermq.topic.records import pack
from quivermq.topic.transfer import TRANSFER_EPOCH

both_ways = pytest.mark.parametrize("way", ["reopen", "kill"])


def frame(*messages: bytes, sequence: int = 0, producer: int = 7, epoch: int = 0) -> bytes:
    sender = quivermq.Producer(producer, epoch, sequence)
    return bytes(encode(messages, timestamp=1_700_000_000_000_000, producer=sender))


@both_ways
def test_an_epoch_is_remembered_where_nothing_was_written(store: Store, way: str) -> None:
    assert store.engine.begin_producer("orders", 7).epoch == 0
    assert store.engine.begin_producer("orders", 7).epoch == 1
    getattr(store, way)()
    error = refused(store, lambda: store.queue().put_frame(frame(b"a"), partition=0))
    assert isinstance(error, quivermq.Conflict)
    assert store.engine.begin_producer("orders", 7) == ProducerState(2, [])


@both_ways
def test_the_first_frame_is_remembered_across_epochs_and_many_batches(store: Store, way: str) -> None:
    queue = store.queue(durability="os")
    queue.put(b"other")
    for sequence in range(producers.BATCHES_MAX + 6):
        queue.put_frame(frame(b"x", sequence=sequence), partition=0)
    for epoch in (1, 2):
        assert store.engine.begin_producer("orders", 7) == ProducerState(
            epoch, [FirstFrame(0, "normal", 1)]
        )
        store.queue().put_frame(frame(b"y", epoch=epoch), partition=0)
        getattr(store, way)()
    assert store.engine.begin_producer("orders", 7) == ProducerState(3, [FirstFrame(0, "normal", 1)])


def test_what_a_snapshot_says_is_enough(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)
    store.queue(durability="os").put_frame(frame(b"x"), partition=0)
    for epoch in range(1, 5):
        store.engine.begin_producer("orders", 7)
        store.queue().put_frame(frame(b"y", epoch=epoch), partition=0)
    store.kill()
    assert store.engine.begin_producer("orders", 7) == ProducerState(5, [FirstFrame(0, "normal", 0)])
    assert store.queue().put_frame(frame(b"z", epoch=5), partition=0).offset == 5


def test_the_oldest_producers_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PLACES_MAX", 4)
    for producer in (1, 2, 3, 4, 5):
        assert store.engine.begin_producer("orders", producer).known_since_us == 0
    store.reopen()
    states = [store.engine.begin_producer("orders", producer) for producer in (4, 5, 1)]
    assert [state.epoch for state in states] == [1, 1, 0]
    assert all(state.known_since_us > 0 for state in states)


def test_epochs_come_to_an_end(store: Store) -> None:
    queue = store.queue(durability="os")
    queue.put_frame(frame(b"a", epoch=TRANSFER_EPOCH - 1), partition=0)
    error = refused(store, lambda: store.engine.begin_producer("orders", 7))
    assert isinstance(error, quivermq.Conflict)


def test_without_room_nothing_has_begun(store: Store) -> None:
    store.queue().put_frame(frame(b"a"), partition=0)
    store.disk.fill_after(0)
    with pytest.raises(quivermq.DiskFull):
        store.engine.begin_producer("orders", 7)
    store.disk.fill_after(None)
    assert store.queue().put_frame(frame(b"b", sequence=1), partition=0).offset == 1
    assert store.engine.begin_producer("orders", 7).epoch == 1


def test_batches_alone_say_where_the_first_one_lies(store: Store) -> None:
    store.queue(durability="os").put_frame(frame(b"a"), partition=0)
    dedup = engine_of(store.engine).catalog.get("orders").topic.dedup
    assert dedup._log is not None
    dedup._log.snapshot([pack(5, 0, (0, 1, 1)), pack(4, 1, (0, 7, 0, 0, 1, 0, START_US))])
    store.reopen()
    assert store.engine.begin_producer("orders", 7) == ProducerState(1, [FirstFrame(0, "normal", 0)])
