"""A message in a consumer's hands."""

from collections.abc import Iterator

import pytest
from support.queues import START_US, Life, Parts

from quivermq.delivery.cursor import Cursor
from quivermq.delivery.taken import deliveries_of
from quivermq.errors import InvalidRequest, LeaseExpired
from quivermq.model.deliveries import Delivery, Receipt, parse_receipt


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.close()


@pytest.fixture
def cursor(parts: Parts) -> Cursor:
    partition = parts.partition()
    partition.log(0).append(
        b"v", key=b"k", headers={"h": b"1"}, timestamp=7, expires_at=START_US + 10**9, dedup_id="x"
    )
    return parts.cursor(partition, attempts_max=2)


@pytest.fixture
def delivery(cursor: Cursor) -> Delivery:
    [delivery] = deliveries_of(cursor.take(0, 1, 1_000_000))
    return delivery


def test_it_has_everything_that_was_put(delivery: Delivery) -> None:
    assert (delivery.value, delivery.key, delivery.headers) == (b"v", b"k", {"h": b"1"})
    assert (delivery.topic, delivery.partition, delivery.priority, delivery.offset) == (
        "orders",
        0,
        "high",
        0,
    )
    assert (delivery.timestamp, delivery.expires_at, delivery.dedup_id) == (7, START_US + 10**9, "x")
    assert (delivery.attempt, delivery.is_settled) == (1, False)
    assert repr(delivery) == "<Delivery orders/p0/high offset 0, attempt 1, 1 bytes>"


def test_its_receipt_names_the_message_and_the_delivery(cursor: Cursor, delivery: Delivery) -> None:
    token = cursor.lanes[0].leases[0].token
    assert parse_receipt(delivery.receipt) == Receipt("orders", 0, 0, 0, token)


@pytest.mark.parametrize("how", ["ack", "nack", "reject"])
def test_it_is_settled_once(delivery: Delivery, how: str) -> None:
    getattr(delivery, how)()
    assert delivery.is_settled
    for again in (delivery.ack, delivery.nack, delivery.reject, lambda: delivery.extend(5)):
        with pytest.raises(LeaseExpired) as raised:
            again()
        assert raised.value.receipts == (delivery.receipt,)


def test_an_extended_lease_lasts_from_now_on(parts: Parts, cursor: Cursor, delivery: Delivery) -> None:
    parts.wall.advance(0.5)
    delivery.extend(2)
    parts.wall.advance(1.9)
    assert cursor.take(0, 1, 1) == []
    delivery.ack()


def test_a_lease_that_ran_out_cannot_be_extended(parts: Parts, delivery: Delivery) -> None:
    parts.wall.advance(1)
    with pytest.raises(LeaseExpired):
        delivery.extend(5)
    with pytest.raises(LeaseExpired):
        delivery.ack()
    assert not delivery.is_settled


def test_a_nack_says_when_and_why(parts: Parts, cursor: Cursor, delivery: Delivery) -> None:
    delivery.nack(3, "not yet", error="E")
    parts.wall.advance(2.9)
    assert cursor.take(0, 1, 10) == []
    parts.wall.advance(0.1)
    [again] = deliveries_of(cursor.take(0, 1, 10))
    assert again.attempt == 2
    again.nack(reason="never", error="E")
    [record] = parts.grave().log(1).records()
    assert record.headers["quiver-dlq-reason"] == b"never"
    assert record.headers["quiver-dlq-error"] == b"E"


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "5", None])
def test_what_is_no_time_is_refused(delivery: Delivery, wrong: float) -> None:
    with pytest.raises(InvalidRequest):
        delivery.extend(wrong)
    if wrong not in (0, None):
        with pytest.raises(InvalidRequest):
            delivery.nack(wrong)
    delivery.ack()


@pytest.mark.parametrize("wrong", [b"bytes", 5])
def test_a_reason_is_a_text(delivery: Delivery, wrong: str) -> None:
    for act in (delivery.nack, delivery.reject):
        with pytest.raises(InvalidRequest, match="texts"):
            act(reason=wrong)
        with pytest.raises(InvalidRequest, match="texts"):
            act(error=wrong)
    assert not delivery.is_settled
    delivery.ack()


def test_its_receipt_does_as_well_after_a_restart() -> None:
    life = Life()
    life.create().put(b"a")
    message = life.get()
    life = life.reopened()
    life.queue().ack(message.receipt)
    assert life.queue().stats().in_flight == 0
    life.close()
