"""The checker notices what it is there for."""

from typing import Any

import pytest

from quivermq.chaos.expectation import Unkept
from quivermq.chaos.numbered import number_in, value_of
from quivermq.chaos.promises import Place, Promises


def delivery(offset: int, number: int, attempt: int = 1) -> list[Any]:
    return [0, "normal", offset, attempt, f"receipt {offset} {attempt}", number]


def told(*lines: tuple[Any, ...]) -> Promises:
    promises = Promises()
    for line in lines:
        promises.note(*line)
    return promises


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
    promises = told(PUT, TAKE)
    with pytest.raises(Unkept, match=complaint):
        promises.note(*last)


def test_what_was_acknowledged_comes_again() -> None:
    promises = told(PUT, TAKE, ("did", "ack", "billing", "receipt 0 1"))
    with pytest.raises(Unkept, match="was acknowledged, and delivered again"):
        promises.note("did", "get", "billing", [delivery(0, 2, 2)])


def test_what_was_cancelled_comes() -> None:
    promises = told(("did", "cancel", 6, True))
    with pytest.raises(Unkept, match="was cancelled, and delivered"):
        promises.note("did", "get", "billing", [delivery(0, 6)])


def test_what_was_overtaken() -> None:
    # Both have no key, so they come in order.
    promises = told(("did", "get", "billing", [delivery(5, 8)]))
    with pytest.raises(Unkept, match="was overtaken"):
        promises.note("did", "get", "billing", [delivery(4, 4)])


def test_a_delayed_message_that_is_called_otherwise() -> None:
    ids = told(("did", "put", [6], [[0, "normal", None, "a-1-0"]])).scheduled_ids
    ids.check(6, "a-1-0")
    for wrong in ("a-1-1", None):
        with pytest.raises(Unkept, match="was delayed as a-1-0, and says"):
            ids.check(6, wrong)
    with pytest.raises(Unkept, match="was not delayed, and says"):
        ids.check(7, "a-1-0")
    # Of one whose put nobody was told about, nobody knows.
    ids.check(11, None)
    ids.check(11, "b-1-0")


def test_a_step_that_was_cut_short_may_have_happened() -> None:
    promises = told(PUT, TAKE, ("try", "ack", "billing", "receipt 0 1"))
    errand = promises.stopped()
    assert promises.maybe_acked == {("billing", Place(0, "normal", 0))}
    assert errand.receipts == []
    promises.note("did", "get", "billing", [delivery(0, 2, 2)])


def test_what_can_be_put_again_is_and_a_frame_as_it_was() -> None:
    promises = told(("try", "put", [3, 4]), ("try", "send", [19, 34]))
    errand = promises.stopped()
    assert (errand.retries, errand.frame, errand.sequence) == ([3], [19, 34], 0)


def test_what_was_refused_must_not_be_there() -> None:
    promises = told(("try", "put", [3]), ("refused",))
    assert 3 not in promises.tried


def test_a_value_that_was_changed() -> None:
    value = bytearray(value_of(7))
    assert number_in(bytes(value)) == 7
    value[-1] ^= 1
    with pytest.raises(Unkept, match="not what was put"):
        number_in(bytes(value))
