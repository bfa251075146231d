"""Frames with what is reserved for later: refused wherever one comes in, embedded and by a broker."""

from typing import Any

import pytest
from contract.test_replace_segment import data, filled, segment, stamp

from quivermq.errors import InvalidFrame
from quivermq.frame import Flag, encode

__all__ = ["data"]

RESERVED = [
    {"flags": Flag.ENCRYPTED},
    {"flags": Flag.TRANSACTIONAL},
    {"flags": Flag.CONTROL | Flag.TRANSACTIONAL},
    {"flags": Flag.DEAD_LETTERS},
    {"flags": 16},
    {"flags": 1 << 15},
    {"columns": 1 | 64},
    {"columns": 1 | 128},
    {"columns": 1 | 1 << 15},
    {"version": 0},
    {"version": 2},
    {"codec": 9},
]


def changed(frame: Any, fields: dict[str, int]) -> bytes:
    """The frame with other words in its header, whose checksum is right."""
    frame.header = frame.header._replace(**fields)
    return bytes(frame)


@pytest.mark.parametrize("fields", RESERVED, ids=str)
def test_none_is_put(mq: Any, fields: dict[str, int]) -> None:
    orders = mq.queue("orders")
    orders.put(b"first")
    with pytest.raises(InvalidFrame):
        orders.put_frame(changed(encode([b"x"], timestamp=1), fields))
    assert orders.put(b"second").offset == 1


def test_nobody_says_what_a_message_was_called_before(mq: Any, data: Any) -> None:
    filled(mq)
    old = segment(data, 0)
    expected = stamp(old)
    forged = encode([b"x"] * 5, timestamp=1, origin_ids=["60a24181e4000-1-0", None, None, None, None])
    with pytest.raises(InvalidFrame, match="origin ids is reserved"):
        mq.queue("state").put_frame(bytes(forged))
    last = old[-1].header
    new = b"".join([*map(bytes, old[:-1]), bytes(forged.stamped(last.base_offset, last.append_time))])
    with pytest.raises(InvalidFrame, match="origin ids is reserved"):
        mq.replace_segment("state", 0, 0, new, expected=expected)
    assert stamp(segment(data, 0)) == expected
    assert {message.scheduled_id for message in mq.queue("state").read()} == {None}


@pytest.mark.parametrize("fields", RESERVED, ids=str)
def test_none_replaces_another(mq: Any, data: Any, fields: dict[str, int]) -> None:
    filled(mq)
    old = segment(data, 0)
    expected = stamp(old)
    new = b"".join([*map(bytes, old[:-1]), changed(old[-1], fields)])
    with pytest.raises(InvalidFrame):
        mq.replace_segment("state", 0, 0, new, expected=expected)
    assert stamp(segment(data, 0)) == expected
