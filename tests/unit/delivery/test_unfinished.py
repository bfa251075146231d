"""What a group has not finished, at a moment."""

from typing import Any

from quivermq.delivery.state import LaneState, Unfinished, Wait, unfinished, unfinished_after
from quivermq.model.deliveries import Lease


def test_leases_and_retries_by_offset() -> None:
    state = LaneState()
    state.grant(Lease(2, 100, token=1), [7, 3])
    state.wait(5, Wait(1, 50))
    state.wait(6, Wait(0, 0), is_its_turn=False)
    assert unfinished(state, now_us=10) == [
        Unfinished(3, 2, "in_flight", 100),
        Unfinished(5, 1, "retrying", 50),
        Unfinished(6, 0, "waiting_for_key", 0),
        Unfinished(7, 2, "in_flight", 100),
    ]


def test_only_what_is_asked_for_is_looked_at() -> None:
    class Looked(dict[int, Any]):
        def get(self, offset: int, default: Any = None) -> Any:
            looked.add(offset)
            return super().get(offset, default)

    looked: set[int] = set()
    leases = Looked({offset: Lease(1, 100, token=1) for offset in range(1000, 0, -2)})
    waiting = Looked({offset: Wait(1, 50) for offset in range(1001, 0, -2)})
    found = unfinished_after(leases, waiting, {}, now_us=10, after=500, limit=3)
    assert found == [
        Unfinished(501, 1, "retrying", 50),
        Unfinished(502, 1, "in_flight", 100),
        Unfinished(503, 1, "retrying", 50),
    ]
    assert looked == {501, 502, 503}
    assert unfinished_after(leases, waiting, {}, now_us=10, after=1001, limit=3) == []


def test_a_lease_is_over_at_its_deadline() -> None:
    state = LaneState()
    state.grant(Lease(1, 100, token=1), [0])
    assert unfinished(state, now_us=99) == [Unfinished(0, 1, "in_flight", 100)]
    assert unfinished(state, now_us=100) == [Unfinished(0, 1, "retrying", 100)]


def test_what_is_finished_is_not_there() -> None:
    state = LaneState()
    state.grant(Lease(1, 100, token=1), [0, 1])
    state.finish([0, 1])
    assert unfinished(state, now_us=0) == []


def test_times_of_delivery_are_those_of_the_first_lease_and_of_the_last() -> None:
    state = LaneState()
    state.grant(Lease(1, 100, token=1, holder="a", since=10), [0, 1])
    state.wait(0, Wait(1, 50))
    assert unfinished(state, now_us=20) == [
        Unfinished(0, 1, "retrying", 50, None, 10, 10),
        Unfinished(1, 1, "in_flight", 100, "a", 10, 10),
    ]
    state.stop_waiting(0)
    state.grant(Lease(2, 200, token=2, holder="b", since=60), [0])
    assert unfinished(state, now_us=70)[0] == Unfinished(0, 2, "in_flight", 200, "b", 10, 60)
    state.wait(0, Wait(2, 90))
    assert unfinished(state, now_us=70)[0] == Unfinished(0, 2, "retrying", 90, None, 10, 60)


def test_a_delivery_that_was_released_is_none() -> None:
    state = LaneState()
    state.grant(Lease(1, 100, token=1, since=10), [0])
    state.wait(0, Wait(0, 1))
    assert unfinished(state, now_us=20) == [Unfinished(0, 0, "released", 0)]
    state.stop_waiting(0)
    state.grant(Lease(1, 100, token=2, since=30), [0])
    state.wait(0, Wait(1, 40))
    state.stop_waiting(0)
    state.grant(Lease(2, 200, token=3, since=50), [0])
    state.wait(0, Wait(1, 1))
    assert unfinished(state, now_us=60) == [Unfinished(0, 1, "retrying", 1, None, 30, 30)]


def test_times_are_forgotten_with_their_message() -> None:
    def waiting() -> LaneState:
        state = LaneState(5)
        state.grant(Lease(1, 100, token=1, since=10), [2, 3])
        state.wait(2, Wait(1, 50))
        state.wait(3, Wait(1, 50))
        return state

    done, sought, cut = waiting(), waiting(), waiting()
    done.finish([2])
    sought.seek(0)
    cut.cut(3)
    assert [list(state.times) for state in (done, sought, cut)] == [[3], [], [2]]
