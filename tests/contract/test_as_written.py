"""The contract, as the design writes it: every line of its Python block, in that order."""

from typing import Any

import quivermq


def test_the_contract_as_written(mq: Any) -> None:
    mq.create_topic("orders", partitions=3)
    orders = mq.queue("orders", group="billing")
    put = orders.put(
        b"hello", key=b"k1", headers={"a": b"1"}, priority="high", ttl=60, delay=60, dedup_id="x",
        partition=None,
    )  # fmt: skip
    assert (put.offset, put.duplicate) == (None, False)
    assert put.partition in range(3)
    assert put.scheduled_id
    assert len(orders.put_many([b"a", b"b", quivermq.Message(value=b"c", key=b"k")])) == 3

    msg = orders.get(timeout=5)
    assert msg.value in {b"a", b"b", b"c"}
    assert (msg.topic, msg.priority, msg.attempt, msg.headers) == ("orders", "normal", 1, {})
    assert msg.key == (b"k" if msg.value == b"c" else None)
    assert msg.partition in range(3)
    assert isinstance(msg.offset, int)
    assert isinstance(msg.timestamp, int)
    assert isinstance(msg.receipt, str)
    msg.ack()

    msgs = orders.get_many(100, timeout=1)
    assert {m.value for m in msgs} | {msg.value} == {b"a", b"b", b"c"}
    orders.ack(msgs)

    orders.put(b"processed")
    with orders.process(timeout=5) as in_hand:
        assert in_hand.value == b"processed"
    orders.put_many([b"1", b"2"])
    streamed = []
    stream = orders.stream()
    for msg in stream:
        streamed.append(msg.value)
        if len(streamed) == 2:
            msg.ack()
            break
    stream.close()
    assert sorted(streamed) == [b"1", b"2"]
    orders.put(b"popped")
    assert orders.pop().value == b"popped"
    assert orders.get() is None

    orders.seek("earliest")
    assert sum(len(orders.read(partition=p, start=0, limit=10)) for p in range(3)) == 7
    assert orders.stats().pending == 7
    assert orders.dead_letters() == []
    assert orders.redrive() == 0
    assert [waiting.id for waiting in orders.scheduled()] == [put.scheduled_id]
    assert orders.cancel(put.scheduled_id) is True
    assert mq.topics() == ["orders"]
    assert mq.stats().messages == 7
    assert (mq.compact().segments, mq.compact().messages) == (0, 0)
    assert not mq.verify().findings


def test_a_closed_queue_says_so(mq: Any) -> None:
    orders = mq.queue("orders")
    orders.put(b"x")
    message = orders.get()
    mq.close()
    mq.close()
    calls = {
        "put": lambda: orders.put(b"x"),
        "put_many": lambda: orders.put_many([b"x"]),
        "get": orders.get,
        "get_many": lambda: orders.get_many(5),
        "pop": orders.pop,
        "process": lambda: orders.process().__enter__(),
        "stream": lambda: next(orders.stream()),
        "ack": message.ack,
        "receipt": lambda: orders.ack(message.receipt),
        "seek": lambda: orders.seek("earliest"),
        "read": orders.read,
        "peek": orders.peek,
        "stats": orders.stats,
        "dead_letters": orders.dead_letters,
        "redrive": orders.redrive,
        "scheduled": orders.scheduled,
        "cancel": lambda: orders.cancel("1-1-1"),
        "topics": mq.topics,
        "topic": lambda: mq.topic("orders"),
        "create_topic": lambda: mq.create_topic("more"),
        "queue": lambda: mq.queue("orders"),
        "compact": mq.compact,
        "verify": mq.verify,
    }
    heard = {name: _error_of(call) for name, call in calls.items()}
    assert heard == dict.fromkeys(calls, "Closing")


def _error_of(call: Any) -> str | None:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return None
