from collections.abc import Callable
from itertools import count

import pytest

from quivermq.cli.patience import Patience
from quivermq.errors import InvalidRequest, Unreachable


def answers(*outcomes: str | Exception) -> Callable[[], str]:
    """A question that has these outcomes, one after the other."""
    left = iter(outcomes)

    def question() -> str:
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return question


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second with each look at it, and pauses that take no time."""
    seconds = count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_a_broker_that_was_there_is_waited_for_and_that_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    patience = Patience()
    gone = Unreachable("it does not answer")
    question = answers("tea", gone, gone, "coffee")
    assert patience.ask(question) == "tea"
    assert patience.ask(question) == "coffee"
    assert capsys.readouterr().err.splitlines() == [
        "it does not answer; waiting for it, Ctrl-C ends this",
        "the broker answers again",
    ]


def test_a_broker_that_was_never_there_is_not_waited_for() -> None:
    with pytest.raises(Unreachable):
        Patience().ask(answers(Unreachable("it does not answer"), "tea"))


def test_there_is_an_end_to_waiting() -> None:
    patience = Patience()
    patience.ask(answers("tea"))
    with pytest.raises(Unreachable):
        patience.ask(answers(*[Unreachable("it does not answer")] * 5), end=3.0)


def test_what_the_broker_refuses_is_not_asked_again() -> None:
    patience = Patience()
    question = answers("tea", InvalidRequest("no"), "coffee")
    patience.ask(question)
    with pytest.raises(InvalidRequest):
        patience.ask(question)
