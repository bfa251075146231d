"""Claims by lease, and runs of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.client.flows import Script, answer, error

from quivermq.client.core import settling
from quivermq.client.core.place import Place
from quivermq.client.core.queue import QueueCalls
from quivermq.client.core.retry import Retry
from quivermq.client.core.settling import Claims, offsets_of, runs_of
from quivermq.client.core.topics import TopicCalls
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


def runs(parts: list[Claims]) -> list[list[list[int]]]:
    return [[lease["runs"] for lease in part.as_json()] for part in parts]


def test_what_one_call_takes_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MESSAGES_MAX", 4)
    monkeypatch.setattr(settling, "LEASES_MAX", 2)
    assert runs(claims().parts()) == [[[3, 5, 9, 10], [1, 2]]]


def test_more_than_one_call_takes_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MESSAGES_MAX", 2)
    assert runs(claims().parts()) == [[[3, 5]], [[9, 10], [1, 2]]]
    monkeypatch.setattr(settling, "LEASES_MAX", 1)
    assert runs(claims().parts()) == [[[3, 5]], [[9, 10]], [[1, 2]]]


def test_every_part_is_settled_whatever_became_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MESSAGES_MAX", 1)
    calls = QueueCalls(TopicCalls(Retry(0)), "orders", "billing", Place)
    receipts = [f"orders:0:1:{offset}:ff" for offset in range(3)]
    late = [answer({"results": [{"ok": False, "refused": [o, o + 1]}]}, 409) for o in (0, 2)]
    script = Script(late[0], answer({"results": [{"ok": True}]}), late[1])
    with pytest.raises(LeaseExpired) as caught:
        script.run(calls.ack(receipts))
    assert caught.value.receipts == (receipts[0], receipts[2])
    refused = error("invalid_request", 400)
    script = Script(late[0], refused, answer({"results": [{"ok": True}]}))
    with pytest.raises(InvalidRequest):
        script.run(calls.ack(receipts))
    assert len(script.calls) == 3
