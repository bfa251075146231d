"""What a receive answers, taken apart."""

import json
from struct import pack
from typing import Any

import pytest

from quivermq.client.core.place import Place
from quivermq.client.core.received import deliveries_of
from quivermq.errors import InvalidFrame, QuiverError
from quivermq.frame import encode, encode_control


def lease(runs: list[int], frames: int, **fields: Any) -> dict[str, Any]:
    usual = {
        "topic": "orders",
        "partition": 1,
        "priority": "low",
        "attempt": 2,
        "token": "1f",
        "deadline": 5,
        "is_last_attempt": False,
    }
    return {**usual, "runs": runs, "frames": frames, **fields}


def frame(*values: bytes, base: int) -> bytes:
    return bytes(encode(values, timestamp=7).stamped(base, 0))


def body(leases: list[dict[str, Any]], *frames: bytes) -> bytes:
    head = json.dumps({"leases": leases}).encode()
    return pack("<I", len(head)) + head + bytes(-(4 + len(head)) % 8) + b"".join(frames)


def place_of(topic: str, partition: int) -> Place:
    return Place(topic, partition, "billing")


def test_a_delivery_has_everything() -> None:
    (delivery,) = deliveries_of(body([lease([17, 18], 1)], frame(b"x", base=17)), place_of)
    assert (delivery.value, delivery.offset, delivery.timestamp) == (b"x", 17, 7)
    assert (delivery.topic, delivery.partition, delivery.priority) == ("orders", 1, "low")
    assert (delivery.attempt, delivery.receipt) == (2, "orders:1:2:17:1f")
    assert not delivery.is_settled
    assert not delivery.is_last_attempt


def test_the_broker_says_which_attempt_is_the_last() -> None:
    (delivery,) = deliveries_of(
        body([lease([0, 1], 1, is_last_attempt=True)], frame(b"x", base=0)), place_of
    )
    assert delivery.is_last_attempt


def test_only_the_messages_of_the_lease_are_delivered() -> None:
    leases = [lease([3, 4, 5, 6], 2), lease([0, 2], 1, priority="high", token="2")]
    found = deliveries_of(
        body(leases, frame(b"2", b"3", b"4", base=2), frame(b"5", b"6", base=5), frame(b"a", b"b", base=0)),
        place_of,
    )
    assert [(d.value, d.offset, d.priority) for d in found] == [
        (b"3", 3, "low"), (b"5", 5, "low"), (b"a", 0, "high"), (b"b", 1, "high")
    ]  # fmt: skip


def test_frames_that_speak_to_the_log_are_passed_over() -> None:
    gap = bytes(encode_control(b"gap", count=2, timestamp=0).stamped(0, 0))
    (delivery,) = deliveries_of(body([lease([2, 3], 2)], gap, frame(b"x", base=2)), place_of)
    assert delivery.offset == 2


def test_nothing_is_nothing() -> None:
    assert deliveries_of(body([]), place_of) == []


def test_an_answer_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(QuiverError):
        deliveries_of(b"", place_of)
    with pytest.raises(QuiverError):
        deliveries_of(pack("<I", 3) + b"{{{", place_of)
    with pytest.raises(InvalidFrame):
        deliveries_of(body([lease([1, 2], 1)]), place_of)
    with pytest.raises(InvalidFrame):
        deliveries_of(body([lease([1, 2], 1)], frame(b"x", base=1)[:-8]), place_of)
