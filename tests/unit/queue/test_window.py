"""What a stream holds: in hand, to come, and to be acknowledged."""

from collections import deque

import pytest
from unit.queue.deliveries import delivery

from quivermq.model.deliveries import Delivery
from quivermq.queue.window import Window, WindowBatch


def batch(*numbers: int) -> list[Delivery]:
    return list(map(delivery, numbers))


def numbers(messages: list[Delivery]) -> list[int]:
    return [message.offset for message in messages]


def test_half_is_fetched_while_half_is_in_hand() -> None:
    window: Window[Delivery] = Window(4)
    assert window.part == 2
    window.came(batch(0, 1), 2)
    assert window.begin() is not None
    assert window.wanted() == 2
    window.came(batch(2, 3), 2)
    assert window.wanted() == 0
    assert window.begin() is not None
    assert window.wanted() == 2


def test_a_fast_loop_takes_all_at_once() -> None:
    window: Window[Delivery] = Window(4)
    window.took(0.001)
    assert window.part == 4
    window.came(batch(0, 1, 2, 3), 4)
    window.begin()
    assert window.wanted() == 0
    window.took(1)
    assert window.part == 2


@pytest.mark.parametrize("prefetch", [2, 3, 5, 1000])
def test_no_more_are_held_than_were_allowed(prefetch: int) -> None:
    window: Window[Delivery] = Window(prefetch)
    window.came(batch(*range(window.part)), window.part)
    window.begin()
    held = window.part + window.wanted()
    assert held == prefetch


def test_nothing_is_fetched_ahead_where_there_is_little() -> None:
    window: Window[Delivery] = Window(10)
    window.came(batch(0), window.part)
    window.begin()
    assert window.wanted() == 0


def ack(window: Window[Delivery]) -> list[int]:
    messages, passed = window.passed()
    window.acked(passed)
    return numbers(messages)


def test_what_the_loop_got_past_is_acknowledged_once() -> None:
    window: Window[Delivery] = Window(6)
    window.came(batch(0, 1, 2), 3)
    window.came(batch(3, 4, 5), 3)
    in_hand = window.begin()
    assert in_hand is not None
    assert ack(window) == []
    in_hand.passed = 2
    assert numbers(window.passed()[0]) == [0, 1]
    assert ack(window) == [0, 1]
    assert ack(window) == []
    assert numbers(window.rest()) == [2, 3, 4, 5]
    in_hand.passed = 3
    following = window.begin()
    assert following is not None
    following.passed = 1
    assert ack(window) == [2, 3]
    assert numbers(window.rest()) == [4, 5]
    assert window.begin() is None
    assert window.rest() == []


def test_what_was_settled_by_the_loop_is_nobody_elses() -> None:
    window: Window[Delivery] = Window(4)
    window.came(batch(0, 1, 2, 3), 4)
    in_hand = window.begin()
    assert in_hand is not None
    in_hand.messages[0].is_settled = in_hand.messages[3].is_settled = True
    in_hand.passed = 2
    assert ack(window) == [1]
    assert numbers(window.rest()) == [2]


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_signal_that_strikes_while_a_batch_is_begun_loses_none(is_taken: bool) -> None:
    class Struck(deque[WindowBatch[Delivery]]):
        def popleft(self) -> WindowBatch[Delivery]:
            if is_taken:
                super().popleft()
            raise KeyboardInterrupt

    window: Window[Delivery] = Window(4)
    window.came(batch(0, 1), 2)
    begun = window.begin()
    assert begun is not None
    begun.passed = 2
    window.came(batch(2, 3), 2)
    window._ready = Struck(window._ready)
    with pytest.raises(KeyboardInterrupt):
        window.begin()
    assert numbers(window.rest()) == [2, 3]
    assert numbers(window.passed()[0]) == [0, 1]
