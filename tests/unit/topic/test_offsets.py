"""Offsets as ranges, and the set that mostly is one run."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.topic.offsets import OffsetSet, offsets_of, runs

offsets = st.sets(st.integers(0, 40))


@pytest.mark.parametrize(
    ("given_offsets", "flat"),
    [
        ([], []),
        ([7], [7, 8]),
        ([3, 4, 5], [3, 6]),
        ([5, 3, 4], [3, 6]),
        ([1, 3], [1, 2, 3, 4]),
        ([9, 0, 1, 5, 6, 4], [0, 2, 4, 7, 9, 10]),
    ],
)
def test_runs_are_half_open_and_in_order(given_offsets: list[int], flat: list[int]) -> None:
    assert runs(given_offsets) == flat


@given(offsets)
def test_runs_stand_for_the_same_offsets(members: set[int]) -> None:
    assert list(offsets_of(runs(members))) == sorted(members)


@given(offsets, offsets)
def test_no_two_runs_touch(members: set[int], more: set[int]) -> None:
    flat = runs(members | more)
    assert all(start < end for start, end in pairwise(flat))


def test_a_new_set_holds_nothing() -> None:
    new = OffsetSet()
    assert not new
    assert (len(new), new.floor, 0 in new) == (0, 0, False)


def test_a_set_with_a_floor_holds_everything_before_it() -> None:
    held = OffsetSet(3)
    assert held
    assert [offset for offset in range(6) if offset in held] == [0, 1, 2]
    assert len(held) == 3


def test_offsets_that_close_the_gap_raise_the_floor() -> None:
    held = OffsetSet()
    held.add([1, 2, 4])
    assert held.floor == 0
    assert held.runs() == [1, 3, 4, 5]
    held.add([0])
    assert held.floor == 3
    assert held.runs() == [4, 5]


def test_a_raised_floor_takes_in_what_it_touches() -> None:
    held = OffsetSet()
    held.add([2, 5, 6, 9])
    held.raise_floor(5)
    assert held.floor == 7
    assert held.runs() == [9, 10]


def test_a_floor_is_never_lowered_by_raising_it() -> None:
    held = OffsetSet(5)
    held.raise_floor(2)
    assert held.floor == 5


@pytest.mark.parametrize("end", [0, 3, 5, 6, 8, 20])
def test_a_cut_leaves_only_what_lies_before_it(end: int) -> None:
    held = OffsetSet(5)
    held.add([7, 9])
    held.cut(end)
    assert [o for o in range(25) if o in held] == [o for o in (0, 1, 2, 3, 4, 7, 9) if o < end]


class Model:
    """The same with a plain set."""

    def __init__(self) -> None:
        self.members: set[int] = set()

    def add(self, offsets: list[int]) -> None:
        self.members.update(offsets)

    def raise_floor(self, floor: int) -> None:
        self.members.update(range(floor))

    def cut(self, end: int) -> None:
        self.members = {offset for offset in self.members if offset < end}


changes = st.one_of(
    st.tuples(st.just("add"), st.lists(st.integers(0, 30), max_size=6)),
    st.tuples(st.just("raise_floor"), st.integers(0, 30)),
    st.tuples(st.just("cut"), st.integers(0, 30)),
)


@given(st.lists(changes), st.integers(0, 35), st.integers(0, 35))
def test_a_set_is_what_a_plain_set_would_be(story: list[tuple[str, object]], start: int, end: int) -> None:
    held, model = OffsetSet(), Model()
    for change, argument in story:
        getattr(held, change)(argument)
        getattr(model, change)(argument)
    members = model.members
    assert {offset for offset in range(40) if offset in held} == members
    assert (len(held), bool(held)) == (len(members), bool(members))
    assert members == {*range(held.floor), *offsets_of(held.runs())}
    assert held.missing_between(start, end) == len([o for o in range(start, end) if o not in members])
