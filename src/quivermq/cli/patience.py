"""Waiting for a broker that is being started again, in commands that run until somebody ends them."""

import time
from collections.abc import Callable
from typing import TypeVar

from quivermq.cli.outgoing import check_reader
from quivermq.cli.output import say
from quivermq.errors import Unreachable

Answer = TypeVar("Answer")

_PAUSE_SECONDS = 1.0


class Patience:
    """Asks again when nobody answers, once somebody did.

    A broker that never answered is more likely to have another address, so that is an error at once.
    """

    def __init__(self) -> None:
        self._was_there = False

    def ask(self, question: Callable[[], Answer], end: float | None = None) -> Answer:
        """The answer, asked for until `end`, a moment of `time.monotonic`, or for ever.

        Raises what the question raises, Unreachable at the end or when nobody has ever answered.
        """
        is_waiting = False
        while True:
            try:
                answer = question()
            except Unreachable as error:
                if not self._was_there or (end is not None and time.monotonic() >= end):
                    raise
                if not is_waiting:
                    say(f"{error}; waiting for it, Ctrl-C ends this")
                is_waiting = True
                check_reader()
                time.sleep(_PAUSE_SECONDS)
            else:
                self._was_there = True
                if is_waiting:
                    say("the broker answers again")
                return answer
