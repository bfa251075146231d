"""What a group has not finished, at a moment."""

from typing import Any

from quivermq.delivery.lease import Lease
from quivermq.delivery.retry import Retry
from quivermq.delivery.state import LaneState
from quivermq.delivery.unfinished import Unfinished, unfinished, unfinished_after


def test_leases_and_retries_by_offset() -> None:
    state = LaneState()
    state.grant(Lease(2, 100, token=1), [7, 3])
    state.wait(5, Retry(1, 50))
    state.wait(6, Retry(0, 0), is_its_turn=False)
    assert unfinished(state, now_us=10) == [
        Unfinished(3, 2, True, 100),
        Unfinished(5, 1, False, 50),
        Unfinished(6, 0, False, 0),
        Unfinished(7, 2, True, 100),
    ]


def test_only_what_is_asked_for_is_looked_at() -> None:
    class Looked(dict[int, Any]):
        def get(self, offset: int, default: Any = None) -> Any:
            looked.add(offset)
            return super().get(offset, default)

    looked: set[int] = set()
    leases = Looked({offset: Lease(1, 100, token=1) for offset in range(1000, 0, -2)})
    retries = Looked({offset: Retry(1, 50) for offset in range(1001, 0, -2)})
    found = unfinished_after(leases, retries, now_us=10, after=500, limit=3)
    assert found == [
        Unfinished(501, 1, False, 50),
        Unfinished(502, 1, True, 100),
        Unfinished(503, 1, False, 50),
    ]
    assert looked == {501, 502, 503}
    assert unfinished_after(leases, retries, now_us=10, after=1001, limit=3) == []


def test_a_lease_is_over_at_its_deadline() -> None:
    state = LaneState()
    state.grant(Lease(1, 100, token=1), [0])
    assert unfinished(state, now_us=99) == [Unfinished(0, 1, True, 100)]
    assert unfinished(state, now_us=100) == [Unfinished(0, 1, False, 100)]


def test_what_is_finished_is_not_there() -> None:
    state = LaneState()
    state.grant(Lease(1, 100, token=1), [0, 1])
    state.finish([0, 1])
    assert unfinished(state, now_us=0) == []
