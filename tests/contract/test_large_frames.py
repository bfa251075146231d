"""A few bytes that become very many messages: refused at the door, and read one by one."""

from typing import Any

import pytest

import quivermq
from quivermq.frame import Codec, Frame, encode
from quivermq.model.messages import Record

COUNT = 40_000


def bomb(count: int) -> bytes:
    return bytes(encode([b""] * count, timestamp=7, codec=Codec.ZSTD))


def test_a_frame_of_too_many_messages_is_refused_whatever_its_size(mq: Any) -> None:
    frame = bomb(100_001)
    assert len(frame) < 300
    with pytest.raises(quivermq.InvalidRequest, match="100001 messages, the limit is 100000"):
        mq.queue("orders").put_frame(frame)
    assert mq.topics() == []


def test_of_very_many_messages_one_is_had_at_a_time(mq: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = mq.queue("orders", "billing")
    orders.put_frame(bomb(COUNT))
    kill = mq.queue("orders", "killer")
    # Nobody makes records of all of them.
    made, real = [], Frame.records

    def records(frame: Frame) -> list[Record]:
        made.append(len(frame))
        return real(frame)

    monkeypatch.setattr(Frame, "records", records)
    assert [each.offset for each in orders.read(start=30_000, limit=2)] == [30_000, 30_001]
    assert orders.peek(1)[0].offset == 0
    assert [orders.get().offset for _ in range(3)] == [0, 1, 2]
    assert [each.offset for each in orders.get_many(5)] == [3, 4, 5, 6, 7]
    orders.get().nack(delay=0)
    assert orders.get().offset == 8
    kill.get().reject("broken")
    assert [letter.offset for letter in kill.dead_letters()] == [0]
    assert len(orders.get_many(3000)) >= 1
    assert max(made) < COUNT
