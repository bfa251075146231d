"""The contract, as the design writes it: every line of its Python block, in that order."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import quivermq

ERRORS = {
    "InvalidRequest": ("InvalidName", "MessageTooLarge", "InvalidFrame", "InvalidSettings"),
    "NotFound": ("TopicNotFound", "GroupNotFound", "OffsetOutOfRange"),
    "Conflict": ("TopicExists", "LeaseExpired", "DirectoryLocked"),
    "Unavailable": ("Overloaded", "Closing", "DiskFull"),
    "StorageFailed": ("Corruption", "FsyncFailed"),
}


def test_the_contract_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with quivermq.open("data") as mq:
        mq.create_topic("orders", partitions=3)
        orders = mq.queue("orders", group="billing")
        put = orders.put(
            b"hello", key=b"k1", headers={"a": b"1"}, priority="high", ttl=60, delay=5, dedup_id="x",
            partition=None,
        )  # fmt: skip
        assert (put.offset, put.duplicate) == (None, False)
        assert put.partition in range(3)
        scheduled_id = put.scheduled_id
        assert scheduled_id
        assert len(orders.put_many([b"a", b"b", quivermq.Message(value=b"c", key=b"k")])) == 3

        msg = orders.get(timeout=5)
        assert msg is not None
        assert msg.value in {b"a", b"b", b"c"}
        assert (msg.topic, msg.priority, msg.attempt, msg.headers) == ("orders", "normal", 1, {})
        assert msg.key == (b"k" if msg.value == b"c" else None)
        assert msg.offset == 0 if msg.value == b"a" else msg.offset in {0, 1}
        assert msg.partition in range(3)
        assert isinstance(msg.timestamp, int)
        assert isinstance(msg.receipt, str)
        msg.ack()

        msgs = orders.get_many(100, timeout=1)
        assert {m.value for m in msgs} | {msg.value} == {b"a", b"b", b"c"}
        orders.ack(msgs)

        orders.put(b"processed")
        with orders.process(timeout=5) as in_hand:
            assert in_hand is not None
            assert in_hand.value == b"processed"
        orders.put_many([b"1", b"2"])
        streamed = []
        for msg in orders.stream():
            streamed.append(msg.value)
            if len(streamed) == 2:
                msg.ack()
                break
        assert sorted(streamed) == [b"1", b"2"]
        orders.put(b"popped")
        popped = orders.pop()
        assert popped is not None
        assert popped.value == b"popped"
        assert orders.get() is None

        orders.seek("earliest")
        assert sum(len(orders.read(partition=p, start=0, limit=10)) for p in range(3)) == 7
        assert orders.stats().pending == 6 + 1
        assert orders.dead_letters() == []
        assert orders.redrive() == 0
        assert [waiting.id for waiting in orders.scheduled()] == [scheduled_id]
        assert orders.cancel(scheduled_id) is True
        assert mq.topics() == ["orders"]
        assert mq.stats().messages == 7
        assert (mq.compact().segments, mq.compact().messages) == (0, 0)
        assert not mq.verify().findings


def test_settling_one_message_in_every_way(mq: quivermq.Connection) -> None:
    orders = mq.queue("orders")
    orders.put_many([b"nack", b"reject", b"extend"])
    nacked, rejected, extended = orders.get_many(3)
    nacked.nack(delay=2, reason="later")
    rejected.reject("never")
    extended.extend(60)
    stats = orders.stats()
    assert (stats.retrying, stats.in_flight, stats.dead_letters) == (1, 1, 1)


def test_an_immediate_put_of_the_contract(mq: quivermq.Connection) -> None:
    put = mq.queue("orders").put(b"v", key=b"k", headers={"a": b"1"}, priority="high", ttl=60, dedup_id="x")
    assert (put.offset, put.priority, put.duplicate, put.scheduled_id) == (0, "high", False, None)
    record = mq.queue("orders").get()
    assert record is not None
    assert (record.value, record.key, record.headers, record.priority) == (b"v", b"k", {"a": b"1"}, "high")


def test_every_error_of_the_design_is_public_and_in_its_place() -> None:
    for parent, children in ERRORS.items():
        assert issubclass(getattr(quivermq, parent), quivermq.QuiverError)
        for child in children:
            assert issubclass(getattr(quivermq, child), getattr(quivermq, parent))


def test_errors_tell_whether_to_retry() -> None:
    assert quivermq.Overloaded.retryable
    assert quivermq.DiskFull.retryable
    assert not quivermq.LeaseExpired.retryable
    assert not quivermq.InvalidRequest.retryable


@pytest.mark.parametrize(
    "name",
    [
        "partitions", "durability", "ordering", "lease_ms", "attempts_max", "backoff_ms", "backoff_ms_max",
        "dedup_window_ms", "backlog_messages_max", "backlog_bytes_max", "backlog_policy",
        "message_bytes_max", "ttl_ms", "dead_letter_expired", "priority_weights", "segment_bytes",
        "segment_messages", "segment_ms", "retention_ms", "retention_bytes", "retention_messages",
        "segments_max", "segments_min", "retention_force", "delete_finished", "codec", "cleanup",
    ],
)  # fmt: skip
def test_every_topic_setting_of_the_design_exists(mq: quivermq.Connection, name: str) -> None:
    mq.create_topic("t")
    value = getattr(mq.topic("t").settings, name)
    mq.alter_topic("t", **{name: value})
    assert getattr(mq.topic("t").settings, name) == value


def test_a_second_opener_is_refused_with_the_pid(tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data"), pytest.raises(quivermq.DirectoryLocked, match="process"):
        quivermq.open(tmp_path / "data")


def test_the_files_are_where_the_design_says(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with quivermq.open(data) as mq:
        queue = mq.queue("orders", "billing")
        queue.put(b"x")
        queue.get()
        assert (data / "LOCK").exists()
        assert (data / "topics/orders/topic.json").exists()
        assert (data / "topics/orders/p0/normal/00000000000000000000.log").exists()
        assert (data / "groups/billing/orders/p0").is_dir()
        assert not (data / "topics/orders/p0/high").exists()
        queue.put(b"x", priority="high")
        assert (data / "topics/orders/p0/high/00000000000000000000.log").exists()


def test_everything_public_has_a_docstring() -> None:
    for owner in (quivermq.Connection, quivermq.Queue, quivermq.Delivery):
        methods: list[tuple[str, Any]] = inspect.getmembers(owner, inspect.isfunction)
        for name, method in methods:
            if not name.startswith("_") and name not in {"topic_stats", "queue_stats", "dead_letter_count"}:
                assert method.__doc__, f"{owner.__name__}.{name}"


CLOSED_CALLS = {
    "put": lambda q: q.put(b"x"),
    "put_rich": lambda q: q.put(b"x", key=b"k"),
    "put_delayed": lambda q: q.put(b"x", delay=5),
    "put_many": lambda q: q.put_many([b"x"]),
    "get": lambda q: q.get(),
    "get_many": lambda q: q.get_many(5),
    "pop": lambda q: q.pop(),
    "process": lambda q: q.process().__enter__(),
    "stream": lambda q: next(q.stream()),
    "seek": lambda q: q.seek("earliest"),
    "read": lambda q: q.read(),
    "peek": lambda q: q.peek(),
    "stats": lambda q: q.stats(),
    "dead_letters": lambda q: q.dead_letters(),
    "redrive": lambda q: q.redrive(),
    "scheduled": lambda q: q.scheduled(),
    "cancel": lambda q: q.cancel("1-1-1"),
}


@pytest.mark.parametrize("name", CLOSED_CALLS)
@pytest.mark.parametrize("is_used", [True, False])
def test_a_closed_queue_says_so(tmp_path: Path, name: str, is_used: bool) -> None:
    mq = quivermq.open(tmp_path / "data")
    queue = mq.queue("orders")
    queue.put(b"x")
    queue.put(b"x", delay=600)
    if is_used:
        queue.get()
    mq.close()
    with pytest.raises(quivermq.Closing):
        CLOSED_CALLS[name](queue)


@pytest.mark.parametrize("name", ["topics", "stats", "compact", "verify"])
def test_a_closed_engine_says_so(tmp_path: Path, name: str) -> None:
    mq = quivermq.open(tmp_path / "data")
    mq.close()
    with pytest.raises(quivermq.Closing):
        getattr(mq, name)()


@pytest.mark.parametrize(
    "name", ["create_topic", "alter_topic", "delete_topic", "topic", "groups", "queue"]
)
def test_a_closed_engine_has_no_topics(tmp_path: Path, name: str) -> None:
    mq = quivermq.open(tmp_path / "data")
    mq.create_topic("t")
    mq.close()
    with pytest.raises(quivermq.Closing):
        getattr(mq, name)("t")


def test_settling_after_the_close_says_so(tmp_path: Path) -> None:
    mq = quivermq.open(tmp_path / "data")
    queue = mq.queue("orders")
    queue.put(b"x")
    message = queue.get()
    assert message is not None
    mq.close()
    mq.close()
    for settle in (message.ack, message.nack, message.reject, lambda: message.extend(5)):
        with pytest.raises(quivermq.Closing):
            settle()
    with pytest.raises(quivermq.Closing):
        queue.ack(message.receipt)
