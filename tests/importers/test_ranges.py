"""Sets of numbers that mostly follow each other, beside Python's own."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from quivermq.importers.ledger import Identities, RangeSet

NUMBERS = st.integers(0, 40)
RANGES = st.tuples(NUMBERS, NUMBERS)


@given(st.lists(NUMBERS | RANGES))
def test_it_holds_what_a_set_holds(steps: list[int | tuple[int, int]]) -> None:
    found, expected = RangeSet(), set[int]()
    for step in steps:
        if isinstance(step, int):
            found.add(step)
            expected.add(step)
        else:
            found.add_range(*step)
            expected |= set(range(*step))
    assert {number for number in range(45) if number in found} == expected
    ranges = list(found.ranges())
    assert {number for start, end in ranges for number in range(start, end)} == expected
    # No two of them touch, or they would be one.
    assert all(end < start for (_, end), (start, _) in pairwise(ranges))


@given(st.lists(st.integers(0, 30) | st.integers(2**64 - 1, 2**128 - 1)))
def test_identities_are_the_same_after_a_way_through_json(identities: list[int]) -> None:
    found, again = Identities(), Identities()
    for identity in identities:
        found.add(identity)
    again.add_json(found.as_json())
    assert all(identity in again for identity in identities)
    assert again.as_json() == found.as_json()
    assert 31 not in again
