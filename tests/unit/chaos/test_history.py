"""The checker notices what it is there for."""

from typing import Any

import pytest

from quivermq.chaos import Violation
from quivermq.chaos.history import LoadHistory, MessagePlace
from quivermq.chaos.load import number_in, value_of


def delivery(offset: int, number: int, attempt: int = 1) -> list[Any]:
    return [0, "normal", offset, attempt, f"receipt {offset} {attempt}", number]


def reported(*lines: tuple[Any, ...]) -> LoadHistory:
    history = LoadHistory()
    for line in lines:
        history.note(*line)
    return history


PUT = ("did", "put", [2, 4], [[0, "normal", 0, None], [0, "normal", 1, None]])
TAKE = ("did", "get", "billing", [delivery(0, 2)])


@pytest.mark.parametrize(
    ("last", "complaint"),
    [
        (("did", "put", [7], [[0, "normal", 1, None]]), "is message 7, and was message 4 before"),
        (("did", "get", "billing", [delivery(1, 2)]), "is message 2, and was message 4 before"),
        (("did", "get", "billing", [delivery(0, 2)]), "attempt 1 follows attempt 1"),
        (("did", "get", "billing", [delivery(0, 2, 9)]), "attempt 9 follows attempt 1"),
    ],
)
def test_an_answer_that_does_not_fit_the_ones_before(last: tuple[Any, ...], complaint: str) -> None:
    history = reported(PUT, TAKE)
    with pytest.raises(Violation, match=complaint):
        history.note(*last)


def test_what_was_acknowledged_comes_again() -> None:
    history = reported(PUT, TAKE, ("did", "ack", "billing", "receipt 0 1"))
    with pytest.raises(Violation, match="was acknowledged, and delivered again"):
        history.note("did", "get", "billing", [delivery(0, 2, 2)])


def test_what_was_cancelled_comes() -> None:
    history = reported(("did", "cancel", 6, True))
    with pytest.raises(Violation, match="was cancelled, and delivered"):
        history.note("did", "get", "billing", [delivery(0, 6)])


def test_what_was_overtaken() -> None:
    # Both have no key, so they come in order.
    history = reported(("did", "get", "billing", [delivery(5, 8)]))
    with pytest.raises(Violation, match="was overtaken"):
        history.note("did", "get", "billing", [delivery(4, 4)])


def test_a_delayed_message_that_is_called_otherwise() -> None:
    history = reported(("did", "put", [6], [[0, "normal", None, "a-1-0"]]))
    history.check_scheduled_id(6, "a-1-0")
    for wrong in ("a-1-1", None):
        with pytest.raises(Violation, match="was delayed as a-1-0, and says"):
            history.check_scheduled_id(6, wrong)
    with pytest.raises(Violation, match="was not delayed, and says"):
        history.check_scheduled_id(7, "a-1-0")
    # Of one whose put nobody was told about, nobody knows.
    history.check_scheduled_id(11, None)
    history.check_scheduled_id(11, "b-1-0")


def test_a_step_that_was_cut_short_may_have_happened() -> None:
    history = reported(PUT, TAKE, ("try", "ack", "billing", "receipt 0 1"))
    run = history.next_run(1)
    assert history.maybe_acked == {("billing", MessagePlace(0, "normal", 0))}
    assert run.receipts == []
    history.note("did", "get", "billing", [delivery(0, 2, 2)])


def test_what_can_be_put_again_is_and_a_frame_as_it_was() -> None:
    history = reported(("try", "put", [3, 4]), ("try", "send", [19, 34]))
    run = history.next_run(1)
    assert (run.retries, run.frame, run.sequence) == ([3], [19, 34], 0)


def test_what_was_refused_must_not_be_there() -> None:
    history = reported(("try", "put", [3]), ("refused",))
    assert 3 not in history.tried


def test_a_value_that_was_changed() -> None:
    value = bytearray(value_of(7))
    assert number_in(bytes(value)) == 7
    value[-1] ^= 1
    with pytest.raises(Violation, match="not what was put"):
        number_in(bytes(value))
