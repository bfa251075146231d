"""The consumer in stream mode: its partitions, its positions, and what happens when members come and go."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker import serving
from support.threads import start, wait_until

import quivermq
from quivermq.client.blocking.backend import HttpBackend
from quivermq.client.consuming.consumer import RemoteConsumer
from quivermq.errors import Fenced

Connect = Callable[[], quivermq.Connection]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """Connects to a broker, as often as a test likes."""
    connections: list[quivermq.Connection] = []
    with serving(tmp_path / "data") as broker:

        def make() -> quivermq.Connection:
            connections.append(quivermq.connect(broker.url))
            return connections[-1]

        yield make
        for connection in connections:
            connection.close()


@pytest.fixture
def mq(connect: Connect) -> quivermq.Connection:
    connection = connect()
    connection.create_topic("orders", partitions=4)
    return connection


def consumer_of(mq: quivermq.Connection, **options: Any) -> RemoteConsumer:
    return mq.consumer("orders", "billing", **{"session_timeout_ms": 1000, **options})


def read(consumer: RemoteConsumer, count: int) -> list[bytes]:
    """So many messages, however long they take."""
    values: list[bytes] = []
    while len(values) < count:
        values += [message.value for message in consumer.poll(0.1)]
    return values


def fill(mq: quivermq.Connection, count: int = 40, start: int = 0) -> list[bytes]:
    values = [b"%d" % number for number in range(start, start + count)]
    queue = mq.queue("orders")
    for partition in range(4):
        queue.put_many([quivermq.Message(v, partition=partition) for v in values[partition::4]])
    return values


def test_one_member_reads_everything_in_order(mq: quivermq.Connection) -> None:
    values = fill(mq)
    with consumer_of(mq) as consumer:
        found: list[Any] = []
        while len(found) < 40:
            found += consumer.poll()
        assert sorted(m.value for m in found) == sorted(values)
        for partition in range(4):
            own = [m for m in found if m.partition == partition]
            assert [m.offset for m in own] == list(range(10))
        assert isinstance(found[0], quivermq.StoredMessage)
        assert [each.partition for each in consumer.assignment] == [0, 1, 2, 3]
        assert set(consumer.lag().values()) == {0}


def test_all_lanes_are_read(mq: quivermq.Connection) -> None:
    queue = mq.queue("orders")
    for priority in ("high", "normal", "low"):
        queue.put(priority.encode(), priority=priority, partition=1)
    with consumer_of(mq) as consumer:
        assert sorted(read(consumer, 3)) == [b"high", b"low", b"normal"]
        queue.put(b"first of its lane", priority="high", partition=2)
        assert read(consumer, 1) == [b"first of its lane"]


def test_a_message_is_returned_as_soon_as_it_comes(mq: quivermq.Connection) -> None:
    with consumer_of(mq) as consumer:
        assert consumer.poll(0) == []
        waiting = start(lambda: consumer.poll(60))
        mq.queue("orders").put(b"new", key=b"k")
        assert [m.value for m in waiting.result(60)] == [b"new"]


def test_what_was_finished_is_not_read_again(mq: quivermq.Connection) -> None:
    fill(mq)
    with consumer_of(mq) as consumer:
        read(consumer, 40)
    fill(mq, 4, start=100)
    with consumer_of(mq) as consumer:
        assert sorted(read(consumer, 4)) == [b"100", b"101", b"102", b"103"]
        assert consumer.poll(0) == []
    # A committed offset is the group's position, whoever moves on from there.
    assert mq.queue("orders", "billing").get() is None


def test_what_a_block_was_given_last_before_it_raised_comes_again(mq: quivermq.Connection) -> None:
    mq.queue("orders").put_many([quivermq.Message(b"%d" % i, partition=0) for i in range(3)])

    def handle(message: quivermq.StoredMessage) -> None:
        assert message.value == b"0"

    with pytest.raises(AssertionError), consumer_of(mq) as consumer:
        list(map(handle, consumer))
    with consumer_of(mq) as consumer:
        assert read(consumer, 2) == [b"1", b"2"]


def test_what_a_block_of_the_connection_was_given_last_before_it_raised_comes_again(
    mq: quivermq.Connection, connect: Connect
) -> None:
    mq.queue("orders").put_many([quivermq.Message(b"%d" % i, partition=0) for i in range(3)])

    def handle(message: quivermq.StoredMessage) -> None:
        assert message.value == b"0"

    with pytest.raises(AssertionError), connect() as other:
        list(map(handle, consumer_of(other)))
    with consumer_of(mq) as consumer:
        assert read(consumer, 2) == [b"1", b"2"]


def test_nothing_is_committed_unless_it_is_told_to(mq: quivermq.Connection) -> None:
    fill(mq)
    with consumer_of(mq, auto_commit_ms=None) as consumer:
        read(consumer, 40)
    with consumer_of(mq, auto_commit_ms=None) as consumer:
        read(consumer, 40)
        consumer.commit()
        consumer.commit()
    with consumer_of(mq, auto_commit_ms=None) as consumer:
        assert consumer.poll(0.1) == []


def test_commits_happen_by_themselves(mq: quivermq.Connection, connect: Connect) -> None:
    fill(mq)
    with consumer_of(mq, auto_commit_ms=0) as consumer:
        read(consumer, 40)
        consumer.poll(0)
        assert connect().queue("orders", "billing").stats().pending == 0


def test_a_consumer_goes_where_it_is_told(mq: quivermq.Connection) -> None:
    fill(mq)
    with consumer_of(mq) as consumer:
        read(consumer, 40)
        assert consumer.position("orders", 2) == 10
        consumer.seek("orders", 2, 7)
        assert consumer.lag()[consumer.assignment[2]] == 3
        assert [m.offset for m in consumer.poll(60)] == [7, 8, 9]
        # Past the end there is nothing: it begins where `reset` says.
        consumer.seek("orders", 2, 99)
        assert consumer.poll(60)[0].offset == 0
        for wrong in (lambda: consumer.seek("orders", 9, 0), lambda: consumer.position("other", 0)):
            with pytest.raises(quivermq.InvalidRequest):
                wrong()


def test_where_a_new_group_begins(mq: quivermq.Connection) -> None:
    fill(mq)
    with mq.consumer("orders", "late", reset="latest") as consumer:
        assert consumer.poll(0) == []
        mq.queue("orders").put(b"new")
        assert read(consumer, 1) == [b"new"]
    with mq.consumer("orders", "strict", reset="error") as consumer:
        for _ in range(2):
            with pytest.raises(quivermq.OffsetOutOfRange):
                consumer.poll()


def test_a_group_that_began_at_the_end_misses_nothing_of_what_comes_then(mq: quivermq.Connection) -> None:
    fill(mq)
    with consumer_of(mq, reset="latest") as consumer:
        assert consumer.poll(0) == []
        assert len(consumer.assignment) == 4
    fill(mq, 4, start=100)
    mq.queue("orders").put(b"104", priority="high", partition=1)
    with consumer_of(mq, reset="latest") as consumer:
        assert sorted(read(consumer, 5)) == [b"100", b"101", b"102", b"103", b"104"]


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative"])
def test_members_share_partitions_and_nothing_is_lost(
    mq: quivermq.Connection, connect: Connect, strategy: str
) -> None:
    assigned: list[Any] = []
    revoked: list[Any] = []
    first = consumer_of(
        mq, strategy=strategy, on_assigned=assigned.extend, on_revoked=revoked.extend
    )  # fmt: skip
    fill(mq)
    seen = read(first, 40)
    second = consumer_of(connect(), strategy=strategy)
    while len(second.assignment) < 2 or len(first.assignment) != 2:
        seen += [m.value for m in first.poll(0.05)]
        seen += [m.value for m in second.poll(0.05)]
    assert set(first.assignment).isdisjoint(second.assignment)
    assert len(assigned) >= 4
    assert set(revoked) >= set(second.assignment)
    fill(mq, 40, start=40)
    while len(set(seen)) < 80:
        seen += [m.value for m in first.poll(0.05)]
        seen += [m.value for m in second.poll(0.05)]
    assert sorted(map(int, seen)) == list(range(80))
    second.close()
    while len(first.assignment) < 4:
        assert first.poll(0.05) == []
    first.close()
    assert mq.queue("orders", "billing").stats().pending == 0


def test_a_member_that_was_thrown_out_joins_again(mq: quivermq.Connection, connect: Connect) -> None:
    fill(mq)
    revoked: list[Any] = []
    with consumer_of(mq, on_revoked=revoked.extend) as consumer:
        read(consumer, 40)
        member = consumer._parts[0].membership.member
        assert member is not None
        other = connect().backend
        assert isinstance(other, HttpBackend)
        other.shell.run(consumer._parts[0].membership._calls.leave(member[0]))
        with pytest.raises(Fenced):
            consumer.commit()
        # What it could not commit comes again.
        assert len(read(consumer, 40)) == 40
        assert len(revoked) == 4
        consumer.commit()


def test_patterns_and_topics_that_come_later_are_read(mq: quivermq.Connection) -> None:
    with mq.consumer(["events.*"], "all", session_timeout_ms=1000) as consumer:
        assert consumer.poll(0) == []
        mq.queue("events.new").put(b"x")
        assert read(consumer, 1) == [b"x"]


def test_partitions_that_are_added_are_read(mq: quivermq.Connection) -> None:
    with consumer_of(mq) as consumer:
        consumer.poll(0)
        mq.alter_topic("orders", partitions=6)
        mq.queue("orders").put(b"x", partition=5)
        assert read(consumer, 1) == [b"x"]


@pytest.mark.parametrize(
    ("topics", "options"),
    [
        ([], {}),
        ("a/b", {}),
        ("orders", {"strategy": "fair"}),
        ("orders", {"reset": "middle"}),
        ("orders", {"auto_commit_ms": -1}),
        ("orders", {"max_poll": 0}),
        ("orders", {"session_timeout_ms": 1}),
        ("orders", {"heartbeat_ms": 1}),
        ("orders", {"heartbeat_ms": 30_000}),
        ("orders", {"heartbeat_ms": 1000, "session_timeout_ms": 1000}),
    ],
)
def test_a_wrong_option_is_refused(mq: quivermq.Connection, topics: Any, options: dict[str, Any]) -> None:
    with pytest.raises(quivermq.InvalidRequest):
        mq.consumer(topics, "g", **options)
    with pytest.raises(quivermq.InvalidName):
        mq.consumer("orders", "a/b")


def test_a_closed_consumer_says_so_and_its_threads_end(mq: quivermq.Connection) -> None:
    fill(mq)
    consumer = consumer_of(mq)
    read(consumer, 40)
    consumer.close()
    consumer.close()
    wait_until(lambda: all(thread.is_over() for thread in consumer._threads))
    with pytest.raises(quivermq.Closing):
        consumer.poll()
    with pytest.raises(quivermq.Closing):
        consumer.commit()


def test_closing_the_connection_closes_its_consumers(connect: Connect, mq: quivermq.Connection) -> None:
    fill(mq)
    other = connect()
    consumer = consumer_of(other)
    read(consumer, 40)
    other.close()
    assert mq.queue("orders", "billing").stats().pending == 0
    with pytest.raises(quivermq.Closing):
        consumer.poll()
