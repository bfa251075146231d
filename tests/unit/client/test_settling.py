"""Claims by lease, and runs of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.client.core.settling import Claims, offsets_of, runs_of
from quivermq.errors import InvalidRequest, LeaseExpired


@given(st.lists(st.integers(0, 60), min_size=1))
def test_runs_are_the_offsets(offsets: list[int]) -> None:
    runs = runs_of(offsets)
    assert list(offsets_of(runs)) == sorted(set(offsets))
    assert runs == sorted(set(runs)), "runs that touch are one"


def claims() -> Claims:
    found = Claims()
    for offset in (3, 4, 9):
        found.add(("orders", 0, 1, 0xFF), offset)
    found.add(("orders", 2, 0, 7), 1)
    return found


def test_claims_are_told_by_lease() -> None:
    assert not Claims()
    assert claims().as_json() == [
        {"topic": "orders", "partition": 0, "priority": "normal", "token": "ff", "runs": [3, 5, 9, 10]},
        {"topic": "orders", "partition": 2, "priority": "high", "token": "7", "runs": [1, 2]},
    ]


def test_those_that_came_late_are_named() -> None:
    claims().settled([{"ok": True}, {"ok": True}], is_final=True)
    with pytest.raises(LeaseExpired) as caught:
        claims().settled(
            [{"ok": False, "refused": [4, 5]}, {"ok": False, "refused": [1, 2]}], is_final=True
        )
    assert caught.value.receipts == ("orders:0:1:4:ff", "orders:2:0:1:7")


def test_another_error_comes_first() -> None:
    failed = {"ok": False, "error": {"code": "invalid_request", "message": "no"}}
    with pytest.raises(InvalidRequest, match="no"):
        claims().settled([failed, {"ok": False, "refused": [1, 2]}], is_final=True)
