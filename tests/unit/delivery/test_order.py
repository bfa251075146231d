"""The line of each key."""

from hypothesis import given
from hypothesis import strategies as st

from quivermq.delivery.ordering import KeyOrder, LaneOffset


def place(offset: int, lane: int = 1) -> LaneOffset:
    return LaneOffset(lane, offset)


def test_the_first_of_a_key_goes_and_the_others_wait() -> None:
    order = KeyOrder()
    assert order.enter(b"a", place(0))
    assert order.enter(b"b", place(1))
    assert not order.enter(b"a", place(2))
    assert not order.enter(b"a", place(3))
    assert [order.is_first(place(offset)) for offset in range(4)] == [True, True, False, False]
    assert order.leave(place(0)) == place(2)
    assert order.is_first(place(2))
    assert order.leave(place(2)) == place(3)
    assert order.leave(place(3)) is None
    assert order.enter(b"a", place(4))


def test_whoever_leaves_from_the_middle_lets_nobody_go() -> None:
    order = KeyOrder()
    for offset in range(3):
        order.enter(b"a", place(offset))
    assert order.leave(place(1)) is None
    assert order.leave(place(0)) == place(2)


def test_messages_without_a_key_wait_for_nobody() -> None:
    order = KeyOrder()
    assert order.enter(None, place(0))
    assert order.enter(None, place(1))
    assert order.is_first(place(1))
    assert order.leave(place(0)) is None
    assert len(order) == 0


def test_an_empty_key_is_a_key() -> None:
    order = KeyOrder()
    assert order.enter(b"", place(0))
    assert not order.enter(b"", place(1))


def test_a_key_has_one_line_over_all_lanes() -> None:
    order = KeyOrder()
    assert order.enter(b"a", place(0, lane=2))
    assert not order.enter(b"a", place(0, lane=0))
    assert order.leave(place(0, lane=2)) == place(0, lane=0)


def test_leaving_twice_does_no_harm() -> None:
    order = KeyOrder()
    order.enter(b"a", place(0))
    order.enter(b"a", place(1))
    assert order.leave(place(0)) == place(1)
    assert order.leave(place(0)) is None
    assert order.is_first(place(1))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans())))
def test_a_line_is_first_in_first_out(story: list[tuple[int, bool]]) -> None:
    order = KeyOrder()
    lines: dict[bytes, list[LaneOffset]] = {}
    for offset, (number, enters) in enumerate(story):
        key = b"%d" % number
        line = lines.setdefault(key, [])
        if enters:
            line.append(place(offset))
            assert order.enter(key, place(offset)) == (len(line) == 1)
        elif line:
            gone = line.pop(0)
            assert order.leave(gone) == (line[0] if line else None)
        assert len(order) == sum(map(len, lines.values()))
