"""What somebody wants to settle, by lease: deliveries, receipts, or both together."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.queue.deliveries import delivery

from quivermq.client.asynchronous.delivery import AsyncDelivery
from quivermq.errors import InvalidRequest, LeaseExpired, QuiverError
from quivermq.model.claims import AnyHeld, Claims
from quivermq.model.deliveries import Delivery, Held, Lease
from quivermq.model.names import Scope
from quivermq.model.operations import Settled

ORDERS = Scope("orders")
FIRST, SECOND = Lease(1, 0, 0xFF), Lease(1, 0, 7)


def claims(held: AnyHeld, scope: Scope = ORDERS) -> Claims:
    return Claims(held, scope, "billing")


def some() -> list[Delivery]:
    """Messages of two leases."""
    together = [delivery(offset, lease=FIRST) for offset in (3, 4, 9)]
    return [*together, delivery(1, partition=2, lane=0, lease=SECOND)]


LEASES = [Held("orders", 0, 1, 0xFF, [3, 4, 9]), Held("orders", 2, 0, 7, [1])]


def mixed() -> list[Delivery | str]:
    return [message if message.offset == 4 else message.receipt for message in some()]


@pytest.mark.parametrize(
    "held",
    [some(), tuple(some()), iter(some()), [message.receipt for message in some()], mixed()],
    ids=["list", "tuple", "iterator", "receipts", "mixed"],
)
def test_claims_are_by_lease(held: AnyHeld) -> None:
    assert claims(held).leases() == LEASES


def test_one_alone_needs_no_list() -> None:
    message = delivery(3, lease=FIRST)
    assert claims(message).leases() == claims(message.receipt).leases() == [Held("orders", 0, 1, 0xFF, [3])]


def test_nothing_is_nothing() -> None:
    assert claims([]).leases() == []


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), unique=True))
def test_whatever_their_order_every_message_is_claimed_once(messages: list[tuple[int, int]]) -> None:
    leases = [Lease(1, 0, token) for token in range(3)]
    held = [delivery(offset, lease=leases[number]) for number, offset in messages]
    for items in (held, [message.receipt for message in held]):
        found = claims(items).leases()
        claimed = [(lease.token, offset) for lease in found for offset in lease.offsets]
        assert sorted(claimed) == sorted(messages)
        assert len({lease.token for lease in found}) == len(found)


def test_leases_of_two_lanes_or_partitions_are_told_apart() -> None:
    # What one call brings has one token, in however many lanes it lies.
    held = [
        delivery(0, lease=Lease(1, 0, 1)),
        delivery(0, lease=Lease(1, 0, 1), lane=2),
        delivery(0, lease=Lease(1, 0, 1), partition=1),
    ]
    expected = [Held("orders", 0, 1, 1, [0]), Held("orders", 0, 2, 1, [0]), Held("orders", 1, 1, 1, [0])]
    assert claims(held).leases() == expected


def test_a_pickled_delivery_claims_what_its_original_does() -> None:
    copies: list[Delivery] = pickle.loads(pickle.dumps(some()))
    assert claims(copies).leases() == LEASES


def test_asynchronous_deliveries_are_claimed_alike() -> None:
    async def settle(*_: object) -> Settled:
        return Settled([])

    assert claims([AsyncDelivery(each, settle) for each in some()]).leases() == LEASES


@pytest.mark.parametrize("wrong", [None, 7, [7], [None], b"x", {"receipt": 1}, ["x"], "orders:0:1:0"])
def test_what_is_neither_a_delivery_nor_a_receipt_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest):
        claims(wrong)


def test_a_single_wrong_one_among_many_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be settled"):
        claims([*some(), 7])  # type: ignore[list-item]


@pytest.mark.parametrize("is_receipt", [False, True])
@pytest.mark.parametrize("is_last", [False, True])
def test_another_topics_messages_are_refused_wherever_they_stand(is_receipt: bool, is_last: bool) -> None:
    other = delivery(0, topic="refunds")
    strange = other.receipt if is_receipt else other
    with pytest.raises(InvalidRequest, match="refunds"):
        claims([*some(), strange] if is_last else [strange, *some()])
    with pytest.raises(InvalidRequest, match="refunds"):
        claims(strange)


def test_a_pattern_takes_the_messages_of_its_topics() -> None:
    scope = Scope("orders.*")
    held = [delivery(0, topic=topic, lease=Lease(1, 0, 1)) for topic in ("orders.eu", "orders.us")]
    expected = [Held("orders.eu", 0, 1, 1, [0]), Held("orders.us", 0, 1, 1, [0])]
    assert claims(held, scope).leases() == expected
    with pytest.raises(InvalidRequest, match="refunds"):
        claims([*held, delivery(0, topic="refunds.eu")], scope)


def test_another_groups_messages_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="delivered to group audit, and this is billing"):
        claims([*some(), delivery(0, group="audit")])


def test_what_was_settled_is_noted() -> None:
    held = some()
    claims(held).done(Settled([]), is_final=True)
    assert all(message.is_settled for message in held)


def test_an_extension_settles_nothing() -> None:
    held = some()
    claims(held).done(Settled([]), is_final=False)
    assert not any(message.is_settled for message in held)


def test_those_that_came_late_are_named_and_the_others_are_settled() -> None:
    held = some()
    late = [held[1].receipt, held[3].receipt]
    with pytest.raises(LeaseExpired) as caught:
        claims(held).done(Settled(late), is_final=True)
    assert caught.value.receipts == ("orders:0:1:4:ff", "orders:2:0:1:7")
    assert [message.is_settled for message in held] == [True, False, True, False]


def test_another_error_comes_first() -> None:
    held = some()
    settled = Settled([held[0].receipt], QuiverError("the disk"))
    with pytest.raises(QuiverError, match="the disk"):
        claims(held).done(settled, is_final=True)
    assert [message.is_settled for message in held] == [False, True, True, True]
