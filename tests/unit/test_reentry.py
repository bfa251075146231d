"""Calls that interrupt calls."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import pytest
from support.entering import entering

from quivermq.errors import Reentered
from quivermq.reentry import entered, held, is_inside, outside, postponed, soon


class Thing:
    """Does what it is told to, in a call."""

    @entered
    def call(self, act: object = None, *, result: int = 0) -> int:
        if callable(act):
            act()
        return result


@held
def hold(act: Callable[[], object]) -> None:
    act()


def test_a_call_that_interrupts_another_is_refused_and_harms_neither() -> None:
    thing = Thing()

    def interrupt() -> None:
        assert is_inside()
        with pytest.raises(Reentered, match="close"):
            thing.call()

    assert thing.call(interrupt, result=7) == 7
    assert not is_inside()
    assert thing.call(result=8) == 8


def test_a_call_that_raises_is_over() -> None:
    def fail() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        Thing().call(fail)
    assert not is_inside()


def test_what_has_to_happen_waits_for_the_end_of_the_call() -> None:
    happened: list[str] = []

    def interrupt() -> None:
        soon(lambda: happened.append("later" if not is_inside() else "too early"))
        assert happened == []

    Thing().call(interrupt)
    assert happened == ["later"]
    soon(lambda: happened.append("now"))
    assert happened == ["later", "now"]


def test_what_fails_later_is_logged_and_the_call_has_its_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise OSError("no")

    with caplog.at_level(logging.ERROR):
        assert Thing().call(lambda: soon(fail), result=3) == 3
    assert "has failed" in caplog.text


def test_code_of_users_may_make_calls() -> None:
    thing = Thing()

    def callback() -> None:
        with outside():
            assert thing.call(result=5) == 5
        assert is_inside()

    assert thing.call(callback, result=6) == 6


def test_what_is_asked_for_while_something_is_held_waits_for_all_of_it() -> None:
    done: list[str] = []

    def act() -> None:
        with entering():
            soon(lambda: done.append("later"))
        # The call has ended, and not what it is a part of.
        assert done == []

    hold(act)
    assert done == ["later"]


def test_what_is_held_inside_of_a_call_does_not_end_that() -> None:
    done: list[str] = []
    with entering():
        hold(lambda: soon(lambda: done.append("later")))
        assert done == []
    assert done == ["later"]


def test_a_signal_that_strikes_behind_what_is_held_does_not_keep_its_thread() -> None:
    def strike(_frame: FrameType, event: str, _: object) -> None:
        # Where a function begins, the interpreter looks whether there was a signal.
        if event == "call":
            sys.settrace(None)
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        try:
            hold(lambda: sys.settrace(strike))
        finally:
            sys.settrace(None)
            assert not is_inside()


def test_a_forked_child_is_in_no_call() -> None:
    def fork() -> None:
        soon(lambda: None)
        child = os.fork()
        if child == 0:
            os._exit(is_inside() or bool(postponed))
        assert os.waitpid(child, 0)[1] == 0
        assert is_inside()

    with entering():
        hold(fork)
