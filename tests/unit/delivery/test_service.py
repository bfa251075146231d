"""Which lane is served next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.group.group import LaneSchedule

MANY = 10**9

weights = st.tuples(*[st.integers(1, 20)] * 3)
ready = st.lists(st.integers(0, 30), min_size=3, max_size=3)


def served(service: LaneSchedule, turns: int, there: list[int]) -> str:
    """Which lane each of so many single messages comes from."""
    lanes = []
    for _ in range(turns):
        [(lane, share)] = service.shares(1, there)
        assert share == 1
        lanes.append("hnl"[lane])
    return "".join(lanes)


def test_lanes_are_served_by_weight() -> None:
    lanes = served(LaneSchedule((8, 4, 1)), 26, [MANY] * 3)
    assert {lane: lanes.count(lane) for lane in "hnl"} == {"h": 16, "n": 8, "l": 2}
    # Evenly: the lowest does not wait for a whole round of the others twice.
    assert "l" in lanes[:13]
    assert "l" in lanes[13:]
    assert "hhhhh" not in lanes


def test_a_batch_is_shared_like_single_messages() -> None:
    assert LaneSchedule((8, 4, 1)).shares(13, [MANY] * 3) == [(0, 8), (1, 4), (2, 1)]
    assert LaneSchedule((1, 1, 1)).shares(2, [MANY] * 3) == [(0, 1), (1, 1)]


def test_what_a_lane_does_not_have_the_others_give() -> None:
    assert LaneSchedule((8, 4, 1)).shares(13, [2, 0, MANY]) == [(0, 2), (2, 11)]
    assert LaneSchedule((8, 4, 1)).shares(100, [2, 3, 4]) == [(0, 2), (1, 3), (2, 4)]


def test_a_lane_alone_gives_everything() -> None:
    assert LaneSchedule((8, 4, 1)).shares(5, [0, 0, 9]) == [(2, 5)]
    assert LaneSchedule((8, 4, 1)).shares(5, [0, 3, 0]) == [(1, 3)]


def test_nothing_is_nothing() -> None:
    assert LaneSchedule((8, 4, 1)).shares(5, [0, 0, 0]) == []
    assert LaneSchedule("strict").shares(5, [0, 0, 0]) == []


def test_strictly_the_highest_goes_first() -> None:
    service = LaneSchedule("strict")
    assert service.shares(5, [2, 2, 9]) == [(0, 2), (1, 2), (2, 1)]
    assert service.shares(2, [2, 2, 9]) == [(0, 2)]
    assert served(service, 5, [1, 1, 1]) == "hhhhh"


@given(weights, st.lists(st.tuples(st.integers(1, 20), ready), min_size=1))
def test_nobody_gets_more_than_there_is_or_less_than_possible(
    given_weights: tuple[int, int, int], rounds: list[tuple[int, list[int]]]
) -> None:
    for service in (LaneSchedule(given_weights), LaneSchedule("strict")):
        for count, there in rounds:
            shares = service.shares(count, there)
            assert sum(share for _, share in shares) == min(count, sum(there))
            assert all(0 < share <= there[lane] for lane, share in shares)
            assert [lane for lane, _ in shares] == sorted({lane for lane, _ in shares})


@given(weights)
def test_in_the_long_run_every_lane_gets_its_share(given_weights: tuple[int, int, int]) -> None:
    service = LaneSchedule(given_weights)
    total = sum(given_weights)
    lanes = served(service, 3 * total, [MANY] * 3)
    assert [lanes.count(lane) for lane in "hnl"] == [3 * weight for weight in given_weights]


@pytest.mark.parametrize("there", [[0, 5, 5], [5, 0, 5]])
def test_a_lane_that_was_empty_has_saved_nothing_up(there: list[int]) -> None:
    service = LaneSchedule((8, 4, 1))
    for _ in range(1000):
        service.shares(1, there)
    lanes = served(service, 26, [MANY] * 3)
    assert abs(lanes.count("h") - 16) <= 2
    assert abs(lanes.count("n") - 8) <= 2
