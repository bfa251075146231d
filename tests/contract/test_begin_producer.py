"""A producer that begins anew: who came before it writes no more, and what is there it can find."""

from typing import Any

import pytest
from contract.wrong import mistakes

import quivermq
from quivermq import FirstFrame, ProducerState
from quivermq.frame import encode

MOMENT_US = 1_700_000_000_000_000
LARGEST = 2**64 - 1


def frame(*messages: bytes, sequence: int = 0, producer: int = LARGEST, epoch: int = 0) -> bytes:
    sender = quivermq.Producer(producer, epoch, sequence)
    return bytes(encode(messages, timestamp=MOMENT_US, producer=sender))


def test_a_producer_that_nobody_has_seen_begins_with_epoch_0(mq: Any) -> None:
    assert mq.begin_producer("orders", 1) == ProducerState(0, [])
    assert mq.begin_producer("orders", LARGEST) == ProducerState(0, [])
    assert mq.begin_producer("orders", 1) == ProducerState(1, [])
    assert mq.topics() == ["orders"]


def test_it_is_told_where_its_first_frames_lie(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    orders = mq.queue("orders")
    orders.put(b"other", partition=1)
    orders.put_frame(frame(b"a", b"b"), partition=1)
    orders.put_frame(frame(b"c", sequence=2), partition=1)
    orders.put_frame(frame(b"d"), partition=0, priority="high")
    orders.put_frame(frame(b"e", producer=5), partition=0)
    there = [FirstFrame(0, "high", 0), FirstFrame(1, "normal", 1)]
    assert mq.begin_producer("orders", LARGEST) == ProducerState(1, there)
    orders.put_frame(frame(b"f", epoch=1), partition=1)
    assert mq.begin_producer("orders", LARGEST) == ProducerState(2, there)


def test_it_is_told_that_nobody_was_forgotten(mq: Any) -> None:
    mq.queue("orders").put_frame(frame(b"a"), partition=0)
    assert mq.begin_producer("orders", LARGEST).known_since_us == 0


def test_who_came_before_writes_no_more(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    orders = mq.queue("orders")
    epoch = mq.begin_producer("orders", LARGEST).epoch
    orders.put_frame(frame(b"a", epoch=epoch), partition=0)
    assert mq.begin_producer("orders", LARGEST).epoch == epoch + 1
    # Where it was, where it goes on, and where it has never been.
    for sent, partition in ((0, 0), (1, 0), (0, 1)):
        with pytest.raises(quivermq.Conflict, match=f"epoch {epoch + 1}"):
            orders.put_frame(frame(b"a", sequence=sent, epoch=epoch), partition=partition)
    orders.put_frame(frame(b"b", epoch=epoch + 1), partition=0)
    assert sorted(m.value for m in orders.get_many(9)) == [b"a", b"b"]


def test_producers_are_fenced_one_by_one(mq: Any) -> None:
    orders = mq.queue("orders")
    orders.put_frame(frame(b"a", producer=3), partition=0)
    mq.begin_producer("orders", 4)
    mq.begin_producer("others", 3)
    assert orders.put_frame(frame(b"b", producer=3, sequence=1), partition=0).offset == 1


WRONG: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda mq: mq.begin_producer("orders", 0), quivermq.InvalidRequest),
    (lambda mq: mq.begin_producer("orders", -1), quivermq.InvalidRequest),
    (lambda mq: mq.begin_producer("orders", LARGEST + 1), quivermq.InvalidRequest),
    (lambda mq: mq.begin_producer("orders", "7"), quivermq.InvalidRequest),
    (lambda mq: mq.begin_producer("a/b", 7), quivermq.InvalidName),
    (lambda mq: mq.begin_producer(5, 7), quivermq.InvalidName),
]


def test_mistakes_are_refused(mq: Any) -> None:
    assert mistakes(WRONG, mq) == []
    assert mq.topics() == []
