"""Calls that take messages, until these are in hand: what an exception in between must not lose.

A signal handler may raise between any two steps: before the request is sent, while the answer is read, when
it was read and nobody has it yet. So each request names the token of the leases that it gets, and whoever
cannot know what came of it has the broker give back what it handed out with that, or else would hand out.
"""

import logging

from quivermq.client.blocking.shell import Shell
from quivermq.client.core.queue import QueueCalls, Tokens
from quivermq.delivery.delivery import is_stop
from quivermq.errors import QuiverError
from quivermq.reentry import soon

logger = logging.getLogger(__name__)


class Takings:
    """The calls of one connection that have not got their messages yet. Thread-safe."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.begun: set[Taking] = set()

    def give_back(self) -> None:
        """End them: whoever waits for them gets nothing any more."""
        for taking in list(self.begun):
            taking.release()


class Taking:
    """One call. It is over by `done` or by `give_back`; what neither was called for, closing gives back."""

    __slots__ = ("_calls", "_takings", "tokens")

    def __init__(self, takings: Takings, calls: QueueCalls) -> None:
        self.tokens: Tokens = []
        self._takings = takings
        self._calls = calls
        takings.begun.add(self)

    def done(self) -> None:
        """Somebody has the messages in hand. In one step: what strikes before it strikes the call."""
        self._takings.begun.discard(self)

    def give_back(self, error: BaseException) -> None:
        """The call has failed: release what it was handed out, or would be."""
        # A broker that was not there is asked once more, and not for long.
        retries = 1 if is_stop(error) else 0
        soon(lambda: self.release(retries))

    def release(self, retries: int = 0) -> None:
        """Have the broker give everything back. Never fails: leases end by themselves."""
        try:
            self._takings.shell.run(self._calls.release_taken(self.tokens, retries))
        except QuiverError as error:
            # Nobody knows whether there was anything; what there was has leases that end.
            logger.info("could not give back what was on its way: %s", error)
        self._takings.begun.discard(self)
