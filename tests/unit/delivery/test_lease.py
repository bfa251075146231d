"""Leases and receipts."""

import pytest

from quivermq.errors import InvalidRequest
from quivermq.model.deliveries import Lease, Receipt, parse_receipt


def test_no_two_leases_have_the_same_token() -> None:
    tokens = {Lease(1, 0).token for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(0 <= token < 2**63 for token in tokens)


def test_a_lease_of_a_journal_keeps_its_token() -> None:
    lease = Lease(3, 77, 0)
    assert (lease.attempt, lease.deadline, lease.token) == (3, 77, 0)


@pytest.mark.parametrize(
    "receipt",
    [
        Receipt("orders", 0, 1, 0, 0),
        Receipt("a.b-c_D9.dlq", 1023, 2, 2**63 - 1, 2**63 - 1),
        Receipt("t" * 253, 7, 0, 5, 255),
    ],
)
def test_a_receipt_is_what_its_text_says(receipt: Receipt) -> None:
    assert parse_receipt(str(receipt)) == receipt
    assert receipt.priority == ("high", "normal", "low")[receipt.lane]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders:0:1:0",
        "orders:0:3:0:ff",
        "orders:0:1:-1:ff",
        "orders:0:1:0:FF",
        "orders:0:1:0:ff ",
        "orders:0:1:0:ff\n",
        "orders:00000:1:0:ff",
        "orders:0:1:0:" + "f" * 17,
        "../x:0:1:0:ff",
        ":0:1:0:ff",
        "orders:٣:1:0:ff",
        "x" * 100_000,
    ],
)
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a receipt") as raised:
        parse_receipt(text)
    assert len(str(raised.value)) < 200
