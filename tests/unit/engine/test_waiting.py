"""Waiting for messages: whatever makes a message available wakes somebody, and nobody is forgotten."""

import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from support.threads import start, wait_until

import quivermq
from quivermq.engine import engine_of
from quivermq.group.group import Group
from quivermq.reentry import outside

pytestmark = pytest.mark.timeout(60)

T = TypeVar("T")

# Who is not woken by then never is. Much less than consumers wait: at the end of their time they look once
# more, and would find what nobody woke them for.
PATIENCE_S = 10
WAIT_S = 600


def waiting(mq: quivermq.Connection, topic: str = "orders", group: str = "default") -> int:
    """How many consumers wait: those of the topic when there is one, otherwise all."""
    hosted = engine_of(mq).catalog.find(topic)
    waiters = engine_of(mq).catalog.waiters if hosted is None else hosted.group(group).waiters
    return len(waiters.waiting)


def begin_waiting(
    mq: quivermq.Connection, queue: quivermq.Queue, count: int = 1
) -> "list[Future[bytes | None]]":
    """Consumers that wait for one message each, and are known to wait when this returns."""

    def take() -> bytes | None:
        message = queue.get(timeout=WAIT_S)
        return None if message is None else message.value

    futures = [start(take) for _ in range(count)]
    topic = next((name for name in mq.topics() if name == queue.topic), "")
    wait_until(lambda: waiting(mq, topic) >= count)
    return futures


def result(future: "Future[T]") -> T:
    return future.result(PATIENCE_S)


@pytest.fixture
def queue(mq: quivermq.Connection) -> quivermq.Queue:
    # Nobody shall be saved by the end of a lease.
    mq.create_topic("orders", durability="os", lease_ms=600_000)
    return mq.queue("orders")


def test_a_put_wakes(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    [future] = begin_waiting(mq, queue)
    queue.put(b"x")
    assert result(future) == b"x"


@pytest.mark.parametrize("how", ["rich", "many", "messages", "high", "batch"])
def test_every_kind_of_put_wakes(mq: quivermq.Connection, queue: quivermq.Queue, how: str) -> None:
    [future] = begin_waiting(mq, queue)
    if how == "rich":
        queue.put(b"x", key=b"k", headers={"h": b"1"})
    elif how == "high":
        queue.put(b"x", priority="high")
    else:
        queue.put_many([b"x"] if how == "many" else [quivermq.Message(b"x", dedup_id="x")])
    assert result(future) == b"x"


def test_a_put_into_a_topic_that_was_not_there_wakes(mq: quivermq.Connection) -> None:
    queue = mq.queue("new")
    [future] = begin_waiting(mq, queue)
    mq.queue("new").put(b"x")
    assert result(future) == b"x"


def test_a_topic_that_is_created_wakes_a_pattern(mq: quivermq.Connection) -> None:
    pattern = mq.queue("events.*")
    [future] = begin_waiting(mq, pattern)
    mq.create_topic("other.a")
    mq.create_topic("events.a")
    wait_until(lambda: waiting(mq, "events.a") == 1)
    mq.queue("events.a").put(b"x")
    assert result(future) == b"x"


def test_a_put_wakes_a_pattern(mq: quivermq.Connection) -> None:
    for name in ("events.a", "events.b"):
        mq.create_topic(name)
    pattern = mq.queue("events.*")
    future = start(lambda: pattern.get(timeout=WAIT_S))
    wait_until(lambda: waiting(mq, "events.b") == 1)
    mq.queue("events.b").put(b"x")
    message = result(future)
    assert message is not None
    assert message.topic == "events.b"
    assert waiting(mq, "events.a") == 0


@pytest.mark.parametrize("delay", [0, 0.05])
def test_a_nack_wakes(mq: quivermq.Connection, queue: quivermq.Queue, delay: float) -> None:
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    [future] = begin_waiting(mq, queue)
    message.nack(delay=delay)
    assert result(future) == b"x"


def test_a_nack_that_backs_off_wakes(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    mq.alter_topic("orders", backoff_ms=20)
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    [future] = begin_waiting(mq, queue)
    message.nack()
    assert result(future) == b"x"


def test_a_retry_that_is_due_wakes_also_those_whom_the_nack_did_not(
    mq: quivermq.Connection, queue: quivermq.Queue
) -> None:
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    impatient = start(lambda: queue.get(timeout=0.05))
    wait_until(lambda: waiting(mq) == 1 or impatient.done())
    [patient] = begin_waiting(mq, queue)
    # The first in line hears of it, and is gone before it is due.
    message.nack(delay=0.3)
    assert result(impatient) is None
    assert result(patient) == b"x"


def test_a_lease_that_expires_wakes(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    queue.put(b"x")
    [message] = queue.get_many(1, lease=0.1)
    [future] = begin_waiting(mq, queue)
    assert result(future) == b"x"
    with pytest.raises(quivermq.LeaseExpired):
        message.ack()


def test_a_lease_that_was_granted_later_wakes(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    [future] = begin_waiting(mq, queue)
    taker = mq.queue("orders")
    # Nobody is woken by what is taken in the same moment, and still the lease runs out.
    with_lease = start(lambda: (taker.put(b"x"), taker.get(lease=0.05)))
    first = result(with_lease)[1]
    assert result(future) == b"x"
    assert first is None or first.value == b"x"


def test_a_delayed_message_that_is_due_wakes(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    [future] = begin_waiting(mq, queue)
    queue.put(b"x", delay=0.05)
    assert result(future) == b"x"


def test_delayed_messages_wake_all_whom_they_serve(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    futures = begin_waiting(mq, queue, 4)
    queue.put_many([quivermq.Message(b"%d" % n, delay=0.02 * n) for n in range(4)])
    assert sorted(str(result(future)) for future in futures) == [str(b"%d" % n) for n in range(4)]


def test_a_seek_wakes(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    queue.put_many([b"x", b"x", b"x"])
    queue.ack(queue.get_many(3))
    futures = begin_waiting(mq, queue, 3)
    queue.seek("earliest")
    assert [result(future) for future in futures] == [b"x"] * 3


def test_a_redrive_wakes(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    queue.put(b"x")
    queue.reject(queue.get_many(1))
    [future] = begin_waiting(mq, queue)
    queue.redrive()
    assert result(future) == b"x"


def test_a_dead_letter_wakes_who_waits_for_dead_letters(
    mq: quivermq.Connection, queue: quivermq.Queue
) -> None:
    queue.put_many([b"1", b"2"])
    messages = queue.get_many(2)
    messages[0].reject()
    graves = mq.queue("orders.dlq")
    assert graves.pop() is not None
    [future] = begin_waiting(mq, graves)
    messages[1].reject()
    assert result(future) == b"2"


def test_an_ack_wakes_who_waits_for_the_key(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", ordering="key", durability="os")
    queue = mq.queue("orders")
    queue.put_many([quivermq.Message(b"1", key=b"k"), quivermq.Message(b"2", key=b"k")])
    first = queue.get()
    assert first is not None
    [future] = begin_waiting(mq, queue)
    first.ack()
    assert result(future) == b"2"


def test_new_partitions_wake_too(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    [future] = begin_waiting(mq, queue)
    mq.alter_topic("orders", partitions=3)
    queue.put(b"x", partition=2)
    assert result(future) == b"x"


@pytest.mark.parametrize("topic", ["orders", "nowhere", "events.*"])
@pytest.mark.parametrize("timeout", [WAIT_S, None])
def test_a_close_wakes_all(tmp_path: Path, topic: str, timeout: float | None) -> None:
    mq = quivermq.open(tmp_path / "data")
    mq.create_topic("orders")
    mq.create_topic("events.a")
    queue = mq.queue(topic)
    futures = [start(lambda: queue.get(timeout=timeout)) for _ in range(4)]
    wait_until(lambda: len(engine_of(mq).catalog.waiters.waiting) == 4)
    mq.close()
    for future in futures:
        with pytest.raises(quivermq.Closing):
            result(future)


def test_a_close_ends_a_stream(tmp_path: Path) -> None:
    mq = quivermq.open(tmp_path / "data")
    queue = mq.queue("orders")
    queue.put(b"x")
    future = start(lambda: [message.value for message in queue.stream()])
    wait_until(lambda: waiting(mq) == 1)
    mq.close()
    with pytest.raises(quivermq.Closing):
        result(future)


def test_a_deleted_topic_lets_its_waiters_wait_for_the_next_of_its_name(
    mq: quivermq.Connection, queue: quivermq.Queue
) -> None:
    [future] = begin_waiting(mq, queue)
    mq.delete_topic("orders")
    wait_until(lambda: len(engine_of(mq).catalog.waiters.waiting) == 1)
    assert not future.done()
    mq.queue("orders").put(b"new")
    assert result(future) == b"new"


def test_a_deleted_group_lets_its_waiters_begin_anew(
    mq: quivermq.Connection, queue: quivermq.Queue
) -> None:
    queue.put(b"x")
    assert queue.pop() is not None
    [future] = begin_waiting(mq, queue)
    mq.delete_group("orders", "default")
    assert result(future) == b"x"


def test_eight_waiters_get_eight_messages(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    for _ in range(20):
        futures = begin_waiting(mq, queue, 8)
        for n in range(8):
            queue.put(b"%d" % n)
        assert sorted(str(result(future)) for future in futures) == [str(b"%d" % n) for n in range(8)]


def test_a_batch_wakes_as_many_as_it_serves(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    futures = begin_waiting(mq, queue, 8)
    queue.put_many([b"x"] * 8)
    assert [result(future) for future in futures] == [b"x"] * 8


def test_every_group_is_woken(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    futures = []
    for group in ("a", "b", "c"):
        other = mq.queue("orders", group)
        futures.append(start(lambda other=other: other.get(timeout=WAIT_S)))  # type: ignore[misc]
        wait_until(lambda group=group: waiting(mq, group=group) == 1)  # type: ignore[misc]
    queue.put(b"x")
    for future in futures:
        assert result(future) is not None


@pytest.mark.parametrize("partitions", [1, 3])
def test_nothing_is_left_lying_while_somebody_waits(mq: quivermq.Connection, partitions: int) -> None:
    mq.create_topic("orders", partitions=partitions, durability="os")
    queue = mq.queue("orders")
    count, consumers = 1600, 8
    left = threading.Semaphore(count)
    seen: list[bytes] = []

    def consume() -> None:
        while left.acquire(blocking=False):
            message = queue.get(timeout=WAIT_S)
            assert message is not None, "a wake-up was lost"
            seen.append(message.value)
            message.ack()

    def produce(number: int) -> None:
        for n in range(0, count // 4, 2):
            queue.put(b"%d" % (number * count + n))
            queue.put_many([b"%d" % (number * count + n + 1)])

    workers = [start(consume) for _ in range(consumers)]
    producers = [start(lambda number=number: produce(number)) for number in range(4)]  # type: ignore[misc]
    for future in [*producers, *workers]:
        result(future)
    assert len(set(seen)) == len(seen) == count


def test_a_wake_up_of_one_who_gave_up_goes_to_another(
    mq: quivermq.Connection, queue: quivermq.Queue
) -> None:
    for _ in range(30):
        hasty = start(lambda: queue.get(timeout=0.002))
        [patient] = begin_waiting(mq, queue)
        queue.put(b"x")
        first = result(hasty)
        if first is not None:
            queue.put(b"x")
        assert result(patient) == b"x"
        queue.seek("latest")


def test_waiting_ends_in_time(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    before = engine_of(mq).clock.monotonic()
    assert queue.get(timeout=0.05) is None
    assert mq.queue("nowhere").get_many(5, timeout=0.05) == []
    assert mq.queue("events.*").pop(timeout=0.05) is None
    assert list(queue.stream(timeout=0.05)) == []
    assert engine_of(mq).clock.monotonic() - before >= 0.19
    assert len(engine_of(mq).catalog.waiters.waiting) == 0
    assert waiting(mq) == 0


def test_waiting_is_not_cut_short_by_what_others_take(
    mq: quivermq.Connection, queue: quivermq.Queue
) -> None:
    [future] = begin_waiting(mq, queue)
    hosted = engine_of(mq).catalog.find("orders")
    assert hosted is not None
    for _ in range(5):
        # A ring without a message: somebody else was quicker.
        hosted.group("default").waiters.wake()
        wait_until(lambda: waiting(mq) == 1)
    assert not future.done()
    queue.put(b"x")
    assert result(future) == b"x"


def test_get_many_returns_with_what_comes_first(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    future = start(lambda: [message.value for message in queue.get_many(100, timeout=WAIT_S)])
    wait_until(lambda: waiting(mq) == 1)
    queue.put(b"x")
    assert result(future) == [b"x"]


def test_a_very_long_timeout(mq: quivermq.Connection, queue: quivermq.Queue) -> None:
    future = start(lambda: queue.get(timeout=10**11))
    wait_until(lambda: waiting(mq) == 1 or future.done())
    queue.put(b"x")
    assert result(future) is not None


def test_a_put_into_a_partition_that_is_just_being_added_wakes(
    mq: quivermq.Connection, queue: quivermq.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    [future] = begin_waiting(mq, queue)
    configure = Group.configure
    is_put = False

    def configure_later(group: Group, settings: quivermq.TopicSettings) -> None:
        nonlocal is_put
        # A put that comes before the group knows of the partition, if the topic lets it in.
        with suppress(quivermq.InvalidRequest), outside():
            queue.put(b"x", partition=1)
            is_put = True
        wait_until(lambda: waiting(mq) == 1 or future.done())
        configure(group, settings)

    with monkeypatch.context() as patch:
        patch.setattr(Group, "configure", configure_later)
        mq.alter_topic("orders", partitions=2)
    if not is_put:
        queue.put(b"x", partition=1)
    assert result(future) == b"x"
