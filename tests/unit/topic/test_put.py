"""What a producer is told."""

import pytest

from quivermq.model.lanes import HIGH, NORMAL
from quivermq.model.messages import Put, Puts, plain_put


def test_a_put_made_the_short_way_is_a_put() -> None:
    made = plain_put(("t", 1, "normal", 5, False, None))
    assert type(made) is Put
    assert made == Put("t", 1, "normal", 5)
    assert (made.offset, made.duplicate, made.scheduled_id) == (5, False, None)


def test_the_puts_of_one_run_are_numbered_on() -> None:
    puts = Puts("t", NORMAL, [(0, 10)], 3)
    assert list(puts) == [Put("t", 0, "normal", 10), Put("t", 0, "normal", 11), Put("t", 0, "normal", 12)]
    assert len(puts) == 3


def test_messages_of_several_runs_take_turns() -> None:
    puts = Puts("t", NORMAL, [(2, 10), (0, 7), (1, 0)], 5)
    assert [(put.partition, put.offset) for put in puts] == [(2, 10), (0, 7), (1, 0), (2, 11), (0, 8)]


@pytest.mark.parametrize("index", [-5, -1, 0, 4])
def test_a_put_is_found_by_its_index(index: int) -> None:
    puts = Puts("t", NORMAL, [(0, 0), (1, 100)], 5)
    assert puts[index] == list(puts)[index]


@pytest.mark.parametrize("index", [5, -6, 100])
def test_an_index_that_is_not_there_raises(index: int) -> None:
    with pytest.raises(IndexError):
        Puts("t", NORMAL, [(0, 0)], 5)[index]


@pytest.mark.parametrize("part", [slice(None), slice(1, 3), slice(None, None, -2), slice(9, 20)])
def test_a_slice_is_a_list_of_puts(part: slice) -> None:
    puts = Puts("t", HIGH, [(0, 0), (1, 100)], 5)
    assert puts[part] == list(puts)[part]
    assert puts[0].priority == "high"


def test_puts_say_what_they_are_without_being_made() -> None:
    assert repr(Puts("t", NORMAL, [(0, 0)], 1_000_000)) == "<Puts of 1000000 messages to t>"
