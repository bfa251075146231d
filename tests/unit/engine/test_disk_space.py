"""A disk that fills up: messages are refused while acks go on, and are taken when there is room."""

import logging
from collections.abc import Callable, Iterator

import pytest
from support.faulty_disk import FaultyDisk
from unit.engine.store import Store, drain, refused

import quivermq

FLOOR_BYTES = 100_000


@pytest.fixture
def small(faulty_disk: FaultyDisk) -> Iterator[Store]:
    """A store that wants some room to be left."""
    settings = quivermq.Settings(engine=quivermq.EngineSettings(free_bytes_min=FLOOR_BYTES))
    store = Store(faulty_disk, settings)
    yield store
    store.close()


def fill(store: Store, room_bytes: int | None) -> None:
    store.disk.fill_after(room_bytes)
    store.pass_time(1)


PUTS: dict[str, Callable[[quivermq.Queue], object]] = {
    "plain": lambda queue: queue.put(b"x"),
    "rich": lambda queue: queue.put(b"x", key=b"k", priority="high"),
    "many": lambda queue: queue.put_many([b"x"]),
    "delayed": lambda queue: queue.put(b"x", delay=5),
    "dedup": lambda queue: queue.put(b"x", dedup_id="x"),
}


@pytest.mark.parametrize("put", PUTS)
def test_below_the_floor_messages_are_refused_and_acks_go_on(small: Store, put: str) -> None:
    queue = small.queue()
    queue.put_many([b"1", b"2", b"3", b"4"])
    fill(small, FLOOR_BYTES - 1)
    for _ in range(2):
        error = refused(small, lambda: PUTS[put](queue))
        assert isinstance(error, quivermq.DiskFull)
        assert error.retryable
    messages = queue.get_many(3)
    assert len(messages) == 3
    messages[0].ack()
    messages[1].nack(delay=0)
    messages[2].extend(60)
    queue.ack(messages[2])
    assert drain(queue) == [b"2", b"4"]
    fill(small, None)
    PUTS[put](queue)
    small.pass_time(5)
    assert drain(queue) == [b"x"]


def test_a_little_more_than_the_floor_is_enough(small: Store) -> None:
    queue = small.queue()
    queue.put(b"1")
    fill(small, FLOOR_BYTES + 1000)
    queue.put(b"2")
    assert drain(queue) == [b"1", b"2"]


def test_it_is_told_once(small: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        fill(small, 10)
        fill(small, 10)
    assert caplog.text.count("bytes left") == 1


def test_no_topic_is_made_below_the_floor(small: Store) -> None:
    small.queue().put(b"x")
    fill(small, FLOOR_BYTES - 1)
    refused(small, lambda: small.queue("new").put(b"x"))
    assert small.engine.topics() == ["orders"]


def test_compacting_makes_room(small: Store) -> None:
    queue = small.queue(segment_messages=1, delete_finished=True)
    for _ in range(10):
        queue.put(bytes(50_000))
    drain(queue)
    fill(small, 1000)
    with pytest.raises(quivermq.DiskFull):
        queue.put(b"x")
    small.engine.compact()
    small.pass_time(1)
    queue.put(b"x")
    assert drain(queue) == [b"x"]


def test_what_is_due_waits_for_room_and_then_comes(small: Store) -> None:
    queue = small.queue()
    queue.put(bytes(50_000), delay=5)
    queue.put(b"there")
    fill(small, 20_000)
    small.pass_time(5)
    assert queue.stats().delayed == 1
    message = queue.get()
    assert message is not None
    assert message.value == b"there"
    message.ack()
    fill(small, None)
    assert drain(queue) == [bytes(50_000)]


def test_a_disk_that_is_full_to_the_last_byte(small: Store) -> None:
    queue = small.queue()
    queue.put_many([b"1", b"2"])
    message = queue.get()
    assert message is not None
    fill(small, 0)
    with pytest.raises(quivermq.DiskFull):
        queue.put(b"3")
    for settle in (message.ack, message.nack, message.reject):
        with pytest.raises(quivermq.DiskFull):
            settle()
    with pytest.raises(quivermq.DiskFull):
        queue.get()
    assert queue.read(limit=5)[0].value == b"1"
    fill(small, None)
    message.ack()
    assert drain(queue) == [b"2"]


def test_leases_that_end_on_a_full_disk_end_once_there_is_room(small: Store) -> None:
    queue = small.queue(attempts_max=1)
    queue.put(b"x")
    queue.get()
    fill(small, 0)
    small.pass_time(31)
    assert queue.dead_letters() == []
    fill(small, None)
    small.pass_time(2)
    queue.get()
    assert len(queue.dead_letters()) == 1
    assert queue.stats().backlog == 0


def test_opening_on_a_disk_below_the_floor_serves_consumers(small: Store) -> None:
    small.queue().put_many([b"1", b"2"])
    small.disk.fill_after(5000)
    small.reopen()
    queue = small.queue()
    with pytest.raises(quivermq.DiskFull):
        queue.put(bytes(200))
    assert drain(queue) == [b"1", b"2"]


def test_redriving_below_the_floor_is_refused(small: Store) -> None:
    queue = small.queue()
    queue.put(b"x")
    queue.reject(queue.get_many(1))
    fill(small, 10)
    with pytest.raises(quivermq.DiskFull):
        queue.redrive()
    assert len(queue.dead_letters()) == 1
    fill(small, None)
    assert queue.redrive() == 1
    assert drain(queue) == [b"x"]


def test_without_a_floor_the_disk_itself_decides(faulty_disk: FaultyDisk) -> None:
    settings = quivermq.Settings(engine=quivermq.EngineSettings(free_bytes_min=0))
    store = Store(faulty_disk, settings)
    queue = store.queue(durability="os")
    queue.put(b"1")
    fill(store, 1000)
    queue.put(b"2")
    with pytest.raises(quivermq.DiskFull):
        queue.put(bytes(2000))
    fill(store, None)
    assert drain(queue) == [b"1", b"2"]
    store.close()
