"""Fetching many objects from a store that stumbles."""

from collections import Counter

import pytest

from quivermq.errors import DamagedChunk, StoreUnreachable
from quivermq.shared.chunk import damaged
from quivermq.shared.fetching import fetched

READERS = 3


def test_objects_come_in_order() -> None:
    found = list(fetched(range(10), lambda number: b"%d" % number, READERS))
    assert found == [(number, b"%d" % number) for number in range(10)]


def test_an_object_is_asked_for_again_and_no_other_one() -> None:
    asked: Counter[int] = Counter()

    def fetch(number: int) -> bytes:
        asked[number] += 1
        if number == 4 and asked[number] < 4:
            raise StoreUnreachable("503")
        return b"%d" % number

    assert [data for _, data in fetched(range(7), fetch, READERS)] == [b"%d" % n for n in range(7)]
    assert asked == {0: 1, 1: 1, 2: 1, 3: 1, 4: 4, 5: 1, 6: 1}


def test_a_store_that_is_gone_is_said_to_be() -> None:
    def fetch(number: int) -> bytes:
        raise StoreUnreachable(f"no {number}")

    with pytest.raises(StoreUnreachable, match="no 0"):
        list(fetched([0], fetch, READERS))


def test_what_is_damaged_is_not_asked_for_again() -> None:
    asked: list[str] = []

    def fetch(name: str) -> bytes:
        asked.append(name)
        raise damaged(name, "it is not there")

    with pytest.raises(DamagedChunk):
        list(fetched(["a"], fetch, READERS))
    assert asked == ["a"]
