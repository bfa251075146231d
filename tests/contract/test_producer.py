"""The producer: batches, order, bounds, failures, and a broker that dies under it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.broker_process import BrokerProcess
from support.broker import Served, serving
from support.threads import start

import quivermq
from quivermq.frame import encode


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as served:
        yield served


@pytest.fixture
def mq(broker: Served) -> Iterator[quivermq.Connection]:
    with quivermq.connect(broker.url) as connection:
        yield connection


def stored(mq: quivermq.Connection, topic: str = "orders") -> list[list[bytes]]:
    """The values of every partition, in order."""
    queue = mq.queue(topic)
    return [[m.value for m in queue.read(p, limit=100_000)] for p in range(mq.topic(topic).partitions)]


def test_what_is_sent_is_stored_in_order(mq: quivermq.Connection) -> None:
    with mq.producer("orders") as producer:
        sent = [producer.send(b"%d" % i) for i in range(5000)]
    assert stored(mq) == [[b"%d" % i for i in range(5000)]]
    results = [each.result() for each in sent if each is not None]
    assert results == [quivermq.Put("orders", 0, "normal", i) for i in range(5000)]
    assert all(each.done() and each.exception() is None for each in sent if each is not None)


def test_a_message_goes_after_a_moment_without_a_flush(mq: quivermq.Connection) -> None:
    producer = mq.producer("orders", linger_ms=1)
    sent = producer.send(b"lonely")
    assert sent is not None
    assert sent.result(60).offset == 0


def test_everything_that_a_message_may_have_arrives(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", partitions=3)
    queue = mq.queue("orders")
    with mq.producer("orders") as producer:
        producer.send(b"plain", partition=2)
        producer.send(b"rich", key=b"k\xff", headers={"a": b"1"}, partition=2)
        producer.send(b"urgent", partition=1, priority="high")
        producer.send(memoryview(b"view"), partition=2)  # type: ignore[arg-type]
    assert [(m.value, m.key, m.headers) for m in queue.read(2)] == [
        (b"plain", None, {}),
        (b"rich", b"k\xff", {"a": b"1"}),
        (b"view", None, {}),
    ]
    assert [m.value for m in queue.read(1, priority="high")] == [b"urgent"]


def test_keys_go_where_the_broker_would_put_them(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", partitions=5)
    keys = [b"key %d" % i for i in range(50)]
    with mq.producer("orders") as producer:
        sent = {key: producer.send(b"x", key) for key in keys}
    queue = mq.queue("orders")
    for key, each in sent.items():
        assert each is not None
        assert each.result().partition == queue.put(b"y", key=key).partition


def test_plain_messages_are_spread_batch_by_batch(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", partitions=3)
    with mq.producer("orders") as producer:
        for number in range(6):
            producer.send(b"%d" % number)
            producer.flush()
    assert sorted(map(len, stored(mq))) == [2, 2, 2]


def test_a_codec_makes_frames_smaller(mq: quivermq.Connection) -> None:
    for topic, codec in (("large", "none"), ("small", "zstd")):
        with mq.producer(topic, compression=codec) as producer:  # type: ignore[arg-type]
            for _ in range(1000):
                producer.send(bytes(100))
    stats = mq.stats().topics
    assert stats["small"].bytes * 5 < stats["large"].bytes
    assert stored(mq, "small") == stored(mq, "large")


def test_the_ttl_of_the_topic_counts(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", ttl_ms=600_000)
    with mq.producer("orders") as producer:
        producer.send(b"mortal")
    (message,) = mq.queue("orders").read()
    assert message.expires_at is not None


def test_nobody_waits_for_messages_without_acks(mq: quivermq.Connection) -> None:
    with mq.producer("orders", acks="none") as producer:
        assert producer.send(b"x") is None
        assert producer.send(b"y", key=b"k") is None
    assert stored(mq) == [[b"x", b"y"]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda p: p.send("text"), quivermq.InvalidRequest),
        (lambda p: p.send(b"x", key="text"), quivermq.InvalidRequest),
        (lambda p: p.send(b"x", partition=1), quivermq.InvalidRequest),
        (lambda p: p.send(b"x", partition="0"), quivermq.InvalidRequest),
        (lambda p: p.send(b"x", priority="urgent"), quivermq.InvalidRequest),
        (lambda p: p.send(bytes(101)), quivermq.MessageTooLarge),
        (lambda p: p.send(bytearray(101)), quivermq.MessageTooLarge),
    ],
)
def test_a_bad_message_spoils_no_other(
    mq: quivermq.Connection, call: Any, error: type[quivermq.QuiverError]
) -> None:
    mq.create_topic("orders", message_bytes_max=100)
    with mq.producer("orders") as producer:
        producer.send(b"before")
        with pytest.raises(error):
            call(producer)
        producer.send(b"after")
    assert stored(mq) == [[b"before", b"after"]]


@pytest.mark.parametrize(
    "options",
    [
        {"linger_ms": -1},
        {"batch_messages": 0},
        {"batch_bytes": 0},
        {"buffer_bytes": "much"},
        {"when_full": "drop"},
        {"acks": "all"},
        {"retries": -1},
        {"durability": "maybe"},
        {"compression": "rar"},
    ],
)
def test_a_wrong_option_is_refused(mq: quivermq.Connection, options: dict[str, Any]) -> None:
    with pytest.raises(quivermq.InvalidRequest):
        mq.producer("orders", **options)
    with pytest.raises(quivermq.InvalidName):
        mq.producer("a/b")


def test_a_full_buffer_raises_or_waits(mq: quivermq.Connection, broker: Served) -> None:
    mq.create_topic("orders", backlog_messages_max=1)
    mq.queue("orders").put(b"in the way")
    producer = mq.producer("orders", buffer_bytes=300, when_full="raise", linger_ms=0)
    producer.send(bytes(200))
    with pytest.raises(quivermq.Overloaded) as caught:
        producer.send(bytes(200))
    assert (caught.value.setting, caught.value.limit) == ("buffer_bytes", 300)
    patient = mq.producer("orders", buffer_bytes=300, linger_ms=0)
    patient.send(bytes(200))
    waiting = start(lambda: patient.send(bytes(200)))
    assert not waiting.done()
    # The broker refused them so far; now it takes them.
    mq.alter_topic("orders", backlog_messages_max=None)
    assert waiting.result(60) is not None
    producer.flush()
    patient.flush()
    assert mq.queue("orders").stats().pending == 4


def test_a_failure_is_told_to_all_who_ask(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", backlog_messages_max=1)
    mq.queue("orders").put(b"in the way")
    producer = mq.producer("orders", retries=0)
    sent = producer.send(b"x")
    assert sent is not None
    with pytest.raises(quivermq.Overloaded):
        producer.flush()
    with pytest.raises(quivermq.Overloaded):
        sent.result()
    assert isinstance(sent.exception(), quivermq.Overloaded)
    # It was told once, and what comes next is stored.
    mq.alter_topic("orders", backlog_messages_max=None)
    producer.send(b"y")
    producer.flush()
    assert stored(mq) == [[b"in the way", b"y"]]


def test_a_flush_waits_no_longer_than_it_says(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", backlog_messages_max=1)
    mq.queue("orders").put(b"in the way")
    producer = mq.producer("orders")
    sent = producer.send(b"x")
    assert sent is not None
    with pytest.raises(quivermq.Unavailable, match="1 messages"):
        producer.flush(0.01)
    with pytest.raises(quivermq.Unavailable, match="on its way"):
        sent.result(0.01)
    mq.alter_topic("orders", backlog_messages_max=None)
    producer.close()
    assert sent.result().offset == 1


def test_a_topic_that_was_made_anew_is_written_to(mq: quivermq.Connection) -> None:
    with mq.producer("orders") as producer:
        producer.send(b"gone")
        producer.flush()
        mq.delete_topic("orders")
        mq.queue("orders").put_frame(strange_frame(producer._sending.identity.producer_id), partition=0)
        producer.send(b"here")
    assert stored(mq) == [[b"strange", b"here"]]


def strange_frame(producer_id: int) -> bytes:
    """A frame after which the producer's own sequence does not fit."""
    return bytes(encode([b"strange"], timestamp=0, producer=quivermq.Producer(producer_id, 0, 77)))


def test_a_closed_producer_takes_nothing(mq: quivermq.Connection) -> None:
    producer = mq.producer("orders")
    producer.send(b"x")
    producer.close()
    producer.close()
    with pytest.raises(quivermq.Closing):
        producer.send(b"y")
    with pytest.raises(quivermq.Closing):
        producer.send(b"y", key=b"k")
    assert stored(mq) == [[b"x"]]


def test_closing_the_connection_loses_nothing(broker: Served) -> None:
    with quivermq.connect(broker.url) as mq:
        producer = mq.producer("orders", linger_ms=60_000)
        for number in range(10):
            producer.send(b"%d" % number)
    with quivermq.connect(broker.url) as mq:
        assert stored(mq) == [[b"%d" % i for i in range(10)]]


def test_threads_share_a_producer(mq: quivermq.Connection) -> None:
    with mq.producer("orders", batch_messages=50) as producer:

        def send_all(name: int) -> None:
            for number in range(500):
                producer.send(b"%d %d" % (name, number))

        for thread in [start(lambda name=name: send_all(name)) for name in range(4)]:  # type: ignore[misc]
            thread.result(60)
    (values,) = stored(mq)
    assert len(values) == 2000
    for name in range(4):
        own = [value for value in values if value.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, number) for number in range(500)]


def test_a_broker_that_dies_or_is_stopped_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, quivermq.connect(broker.url) as mq:
        mq.create_topic("orders", partitions=2)
        producer = mq.producer("orders", batch_messages=20, linger_ms=1)
        keys = [b"a", b"b", b"c"]
        sent: list[Any] = []
        for number in range(6000):
            sent.append(producer.send(b"%d" % number, key=keys[number % 3]))
            if number in (2000, 4000):
                # In the middle of it: some of them are stored, some on their way.
                sent[number - 500].result(60)
                (broker.kill if number == 2000 else broker.stop)()
                broker.start()
        producer.flush()
        places = [each.result() for each in sent]
        assert len({(place.partition, place.offset) for place in places}) == 6000
        found = stored(mq)
        assert sorted(map(int, found[0] + found[1])) == list(range(6000))
        for values in found:
            assert [int(v) for v in values] == sorted(map(int, values))
        for number, place in enumerate(places):
            assert place.offset is not None
            assert found[place.partition][place.offset] == b"%d" % number
