"""What a stream holds: in hand, to come, and to be acknowledged."""

import pytest

from quivermq.client.core.window import Batch, Window


class Message:
    """As much of a delivery as a window looks at."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_settled = False


def batch(*numbers: int) -> Batch[Message]:
    messages = [Message(number) for number in numbers]
    return Batch(len(messages), lambda: messages)


def numbers(messages: list[Message]) -> list[int]:
    return [message.number for message in messages]


def test_half_is_fetched_while_half_is_in_hand() -> None:
    window: Window[Message] = Window(4)
    assert window.part == 2
    window.came(batch(0, 1), 2)
    assert window.begin() is not None
    assert window.wanted() == 2
    window.came(batch(2, 3), 2)
    assert window.wanted() == 0
    assert window.begin() is not None
    assert window.wanted() == 2


def test_a_fast_loop_takes_all_at_once() -> None:
    window: Window[Message] = Window(4)
    window.took(0.001)
    assert window.part == 4
    window.came(batch(0, 1, 2, 3), 4)
    window.begin()
    assert window.wanted() == 0
    window.took(1)
    assert window.part == 2


@pytest.mark.parametrize("prefetch", [2, 3, 5, 1000])
def test_no_more_are_held_than_were_allowed(prefetch: int) -> None:
    window: Window[Message] = Window(prefetch)
    window.came(batch(*range(window.part)), window.part)
    window.begin()
    held = window.part + window.wanted()
    assert held == prefetch


def test_nothing_is_fetched_ahead_where_there_is_little() -> None:
    window: Window[Message] = Window(10)
    window.came(batch(0), window.part)
    window.begin()
    assert window.wanted() == 0


def tell(window: Window[Message]) -> list[int]:
    messages, told = window.passed()
    window.told(told)
    return numbers(messages)


def test_what_the_loop_got_past_is_told_once() -> None:
    window: Window[Message] = Window(6)
    window.came(batch(0, 1, 2), 3)
    window.came(batch(3, 4, 5), 3)
    in_hand = window.begin()
    assert in_hand is not None
    assert tell(window) == []
    in_hand.passed = 2
    assert numbers(window.passed()[0]) == [0, 1]
    assert tell(window) == [0, 1]
    assert tell(window) == []
    assert numbers(window.rest()) == [2, 3, 4, 5]
    in_hand.passed = 3
    following = window.begin()
    assert following is not None
    following.passed = 1
    assert tell(window) == [2, 3]
    assert numbers(window.rest()) == [4, 5]
    assert window.begin() is None
    assert window.rest() == []


def test_what_was_settled_by_the_loop_is_nobody_elses() -> None:
    window: Window[Message] = Window(4)
    window.came(batch(0, 1, 2, 3), 4)
    in_hand = window.begin()
    assert in_hand is not None
    in_hand.messages[0].is_settled = in_hand.messages[3].is_settled = True
    in_hand.passed = 2
    assert tell(window) == [1]
    assert numbers(window.rest()) == [2]


def test_messages_are_made_once_and_not_before_they_are_wanted() -> None:
    made: list[int] = []

    def make() -> list[Message]:
        made.append(1)
        return [Message(0)]

    each = Batch(1, make)
    assert made == []
    assert each.messages is each.messages
    assert made == [1]
