"""What a group knows of one lane."""

import pytest

from quivermq.delivery.state import LaneState, Wait
from quivermq.model.deliveries import Lease


@pytest.fixture
def state() -> LaneState:
    """Ten messages were handed out: 2 and 3 are leased, 5 and 7 wait, the others are finished."""
    state = LaneState()
    state.next = 10
    state.grant(Lease(1, 100, 77), [2, 3])
    state.wait(5, Wait(1, 50))
    state.wait(7, Wait(2, 40))
    return state


def test_a_new_lane_has_everything_before_it() -> None:
    assert (LaneState().floor, LaneState().unfinished, LaneState(5).floor) == (0, 0, 5)


def test_what_has_neither_a_lease_nor_a_retry_is_finished(state: LaneState) -> None:
    assert (state.floor, state.unfinished) == (2, 4)
    state.finish([2, 3, 4])
    assert (state.floor, state.unfinished) == (5, 2)
    state.finish([5, 7])
    assert (state.floor, state.unfinished) == (10, 0)


def test_a_million_acks_out_of_order_cost_nothing() -> None:
    state = LaneState()
    state.next = 1_000_000
    state.grant(Lease(1, 0), range(1_000_000))
    state.finish(range(1, 1_000_000, 2))
    assert (state.floor, state.unfinished) == (0, 500_000)
    state.finish(range(0, 1_000_000, 2))
    assert (state.floor, len(state.leases)) == (1_000_000, 0)


def test_a_message_waits_instead_of_being_leased(state: LaneState) -> None:
    state.wait(2, Wait(1, 60))
    assert sorted(state.leases) == [3]
    assert sorted(state.waiting) == [2, 5, 7]


def test_those_that_are_due_come_in_the_order_of_their_time(state: LaneState) -> None:
    assert state.next_due() == 40
    assert state.take_due(5, 39) == []
    assert state.take_due(5, 40) == [(7, Wait(2, 40))]
    assert state.take_due(5, 100) == [(5, Wait(1, 50))]
    assert state.next_due() is None
    assert sorted(state.waiting) == [5, 7], "they stay until they are granted"


def test_no_more_come_than_are_asked_for(state: LaneState) -> None:
    assert state.take_due(1, 100) == [(7, Wait(2, 40))]
    assert state.take_due(1, 100) == [(5, Wait(1, 50))]


def test_what_was_taken_can_be_put_back(state: LaneState) -> None:
    taken = state.take_due(5, 100)
    state.put_back(taken)
    assert state.take_due(5, 100) == taken


def test_finished_and_changed_ones_do_not_come(state: LaneState) -> None:
    state.finish([7])
    assert state.next_due() == 50
    state.wait(5, Wait(2, 90))
    assert state.next_due() == 90
    assert state.take_due(5, 100) == [(5, Wait(2, 90))]


def test_one_whose_turn_it_is_not_waits_unseen(state: LaneState) -> None:
    state.wait(8, Wait(0, 0), is_its_turn=False)
    assert 8 in state.waiting
    assert state.next_due() == 40
    state.rebuild_due_heap()
    assert state.next_due() == 0


def test_a_seek_forgets_everything(state: LaneState) -> None:
    state.seek(4)
    assert (state.next, state.floor, state.unfinished, state.next_due()) == (4, 4, 0, None)


@pytest.mark.parametrize(
    ("end", "behind", "left", "next_offset"),
    [
        (20, False, [2, 3, 5, 7], 10),
        (10, False, [2, 3, 5, 7], 10),
        (9, True, [2, 3, 5, 7], 9),
        (7, True, [2, 3, 5], 7),
        (3, True, [2], 3),
        (0, True, [], 0),
    ],
)
def test_a_cut_forgets_what_lies_behind_the_end(
    state: LaneState, end: int, behind: bool, left: list[int], next_offset: int
) -> None:
    assert state.reaches_behind(end) is behind
    state.cut(end)
    assert sorted([*state.leases, *state.waiting]) == left
    assert state.next == next_offset
    assert sorted(offset for offset, _ in state.take_due(9, 100)) == [o for o in left if o in (5, 7)]
    assert not state.reaches_behind(end)


def test_a_lease_that_lies_behind_the_end_counts_alone(state: LaneState) -> None:
    state.next = 0
    assert state.reaches_behind(7)
    state.finish([5, 7])
    assert state.reaches_behind(3)
    assert not state.reaches_behind(4)


def test_leases_are_told_with_all_their_offsets(state: LaneState) -> None:
    state.grant(Lease(2, 100, 78), [9])
    found = {lease.token: offsets for lease, offsets in state.leases_by_identity()}
    assert found == {77: [2, 3], 78: [9]}


def test_zero_is_a_position_only_for_a_group_that_was_sent_there(state: LaneState) -> None:
    lane = LaneState()
    assert (lane.has_begun, lane.is_at(0)) == (False, False)
    lane.seek(0)
    assert (lane.has_begun, lane.is_at(0), lane.is_at(1)) == (True, True, False)
    assert state.has_begun


def test_a_lane_with_something_unfinished_is_at_no_position(state: LaneState) -> None:
    assert not state.is_at(10)
    state.finish([2, 3])
    assert not state.is_at(10)
    state.finish([5, 7])
    assert state.is_at(10)
