"""Leases that are settled over the wire: as runs of offsets, in as many calls as it takes."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.client.flows import Script, answer, error

from quivermq.client.core import settling
from quivermq.client.core.call import Broken
from quivermq.client.core.queue import QueueCalls
from quivermq.client.core.retry import Retry
from quivermq.client.core.settling import leases_json, parts_of
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import InvalidRequest, LeaseExpired, Unreachable
from quivermq.model.deliveries import Held
from quivermq.model.operations import Settle, Settled
from quivermq.topic.offsets import offsets_of

GONE = Broken("cut", was_sent=True)
HELD = [Held("orders", 0, 1, 0xFF, [3, 4, 9]), Held("orders", 2, 0, 7, [1])]


@given(st.lists(st.integers(0, 60), min_size=1))
def test_runs_are_the_offsets(offsets: list[int]) -> None:
    runs = leases_json([Held("orders", 0, 1, 7, offsets)])[0]["runs"]
    assert list(offsets_of(runs)) == sorted(set(offsets))
    assert runs == sorted(set(runs)), "runs that touch are one"


def test_leases_are_told_one_by_one() -> None:
    assert leases_json([]) == []
    assert leases_json(HELD) == [
        {"topic": "orders", "partition": 0, "priority": "normal", "token": "ff", "runs": [3, 5, 9, 10]},
        {"topic": "orders", "partition": 2, "priority": "high", "token": "7", "runs": [1, 2]},
    ]


def calls() -> QueueCalls:
    return QueueCalls(TopicCalls(Retry(0)), "orders", "billing", lambda *_: cast(Any, None))


def settled(*results: dict[str, Any]) -> Settled:
    status = 200 if all(result["ok"] for result in results) else 409
    found: Settled = Script(answer({"results": results}, status)).run(calls().settle(Settle("ack"), HELD))
    return found


def test_those_that_came_late_are_named() -> None:
    assert settled({"ok": True}, {"ok": True}) == Settled([])
    late = settled({"ok": False, "refused": [4, 5]}, {"ok": False, "refused": [1, 2]})
    assert late == Settled(["orders:0:1:4:ff", "orders:2:0:1:7"])
    with pytest.raises(LeaseExpired) as caught:
        late.check()
    assert caught.value.receipts == ("orders:0:1:4:ff", "orders:2:0:1:7")


def test_another_error_comes_first() -> None:
    failed = {"ok": False, "error": {"code": "invalid_request", "message": "no"}}
    with pytest.raises(InvalidRequest, match="no"):
        settled(failed, {"ok": False, "refused": [1, 2]}).check()


def runs(parts: list[list[Held]]) -> list[list[list[int]]]:
    return [[lease["runs"] for lease in leases_json(part)] for part in parts]


def test_what_one_call_takes_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MESSAGES_MAX", 4)
    monkeypatch.setattr(settling, "LEASES_MAX", 2)
    assert runs(parts_of(HELD)) == [[[3, 5, 9, 10], [1, 2]]]


def test_more_than_one_call_takes_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MESSAGES_MAX", 2)
    assert runs(parts_of(HELD)) == [[[3, 5]], [[9, 10], [1, 2]]]
    monkeypatch.setattr(settling, "LEASES_MAX", 1)
    assert runs(parts_of(HELD)) == [[[3, 5]], [[9, 10]], [[1, 2]]]


def test_every_part_is_settled_whatever_became_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MESSAGES_MAX", 1)
    held = [Held("orders", 0, 1, 0xFF, [0, 1, 2])]
    receipts = held[0].receipts()
    late = [answer({"results": [{"ok": False, "refused": [o, o + 1]}]}, 409) for o in (0, 2)]
    script = Script(late[0], answer({"results": [{"ok": True}]}), late[1])
    with pytest.raises(LeaseExpired) as caught:
        script.run(calls().settle(Settle("ack"), held)).check()
    assert caught.value.receipts == (receipts[0], receipts[2])
    refused = error("invalid_request", 400)
    script = Script(late[0], refused, answer({"results": [{"ok": True}]}))
    some: Settled = script.run(calls().settle(Settle("ack"), held))
    assert some.late == receipts[:2], "what was refused is not settled"
    with pytest.raises(InvalidRequest):
        some.check()
    assert len(script.calls) == 3


def test_a_broker_that_is_gone_is_not_asked_for_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MESSAGES_MAX", 1)
    script = Script(GONE)
    with pytest.raises(Unreachable):
        script.run(calls().settle(Settle("ack"), HELD))
    assert len(script.calls) == 1
