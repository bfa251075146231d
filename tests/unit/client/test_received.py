"""What a receive answers, taken apart."""

from struct import pack

import pytest
from unit.client.answers import body, frame, lease

from quivermq.client.core.received import Received
from quivermq.errors import InvalidFrame, QuiverError
from quivermq.frame import encode_control
from quivermq.model.operations import Settled
from quivermq.model.settler import QueueSettler


def settler_of(topic: str, partition: int) -> QueueSettler:
    return QueueSettler(lambda *_: Settled([]), topic, partition, "billing")


def test_a_delivery_has_everything() -> None:
    (delivery,) = Received(body([lease([17, 18], 1)], frame(b"x", base=17))).deliveries(settler_of)
    assert (delivery.value, delivery.offset, delivery.timestamp) == (b"x", 17, 7)
    assert (delivery.topic, delivery.partition, delivery.priority) == ("orders", 1, "low")
    assert (delivery.attempt, delivery.receipt) == (2, "orders:1:2:17:1f")
    assert not delivery.is_settled
    assert not delivery.is_last_attempt


def test_the_broker_says_which_attempt_is_the_last() -> None:
    (delivery,) = Received(body([lease([0, 1], 1, is_last_attempt=True)], frame(b"x", base=0))).deliveries(
        settler_of
    )
    assert delivery.is_last_attempt


def test_only_the_messages_of_the_lease_are_delivered() -> None:
    leases = [lease([3, 4, 5, 6], 2), lease([0, 2], 1, priority="high", token="2")]
    found = Received(
        body(leases, frame(b"2", b"3", b"4", base=2), frame(b"5", b"6", base=5), frame(b"a", b"b", base=0))
    ).deliveries(settler_of)
    assert [(d.value, d.offset, d.priority) for d in found] == [
        (b"3", 3, "low"), (b"5", 5, "low"), (b"a", 0, "high"), (b"b", 1, "high")
    ]  # fmt: skip


def test_frames_that_speak_to_the_log_are_passed_over() -> None:
    gap = bytes(encode_control(b"gap", count=2, timestamp=0).stamped(0, 0))
    (delivery,) = Received(body([lease([2, 3], 2)], gap, frame(b"x", base=2))).deliveries(settler_of)
    assert delivery.offset == 2


def test_nothing_is_nothing() -> None:
    assert Received(body([])).deliveries(settler_of) == []


def test_an_answer_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(QuiverError):
        Received(b"").deliveries(settler_of)
    with pytest.raises(QuiverError):
        Received(pack("<I", 3) + b"{{{").deliveries(settler_of)
    with pytest.raises(InvalidFrame):
        Received(body([lease([1, 2], 1)])).deliveries(settler_of)
    with pytest.raises(InvalidFrame):
        Received(body([lease([1, 2], 1)], frame(b"x", base=1)[:-8])).deliveries(settler_of)
