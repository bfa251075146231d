"""Syncs that order, and syncs that acknowledge: who waits for the store, and when.

A sync says two things: that what comes later may rely on what came before, and that it survives. On a
shared disk the first is free, because everything is in one order. So a thread that does something for
somebody remembers the largest ticket that it has met, and waits for that alone, once, at the end.
"""

import os
import threading
from _thread import get_ident
from collections.abc import Callable
from pathlib import Path

from quivermq.disk import Answer, Ticket
from quivermq.errors import Closing, QuiverError
from quivermq.reentry import entered, inside
from quivermq.shared.committer import Committer


class _Block(threading.local):
    """What this thread is in the middle of."""

    ticket: Ticket | None = None
    """The largest ticket that its end waits for; None while the thread is in nothing."""
    asked: Ticket = 0
    """The largest ticket of which its end only asks that it be committed."""


class Ordering:
    """The `quivermq.disk.Commits` of a shared disk. Thread-safe."""

    def __init__(self, committer: Committer, root: Path) -> None:
        self._committer = committer
        self._root = root
        self._block = _Block()
        self._pid = os.getpid()
        # A signal handler that strikes in there would wait for who it has interrupted.
        self._entered_commit = entered(committer.commit)
        self._entered_admit = entered(committer.admit)

    @property
    def failure(self) -> QuiverError | None:
        """Why nothing can be changed any more, NotOwner for instance; None while everything can."""
        return self._committer.failure

    @property
    def is_waiting_later(self) -> bool:
        """Whether this thread is in something at whose end it waits, or nobody does."""
        return self._block.ticket is not None

    def ticket(self) -> Ticket:
        """What stands for everything done so far: how many mutations that were."""
        return self._committer.last

    def is_committed(self, ticket: Ticket) -> bool:
        """Whether the store has all that a ticket stands for."""
        return self._committer.committed.ticket >= ticket

    def commit(self, ticket: Ticket) -> None:
        """Return once the store has all that a ticket stands for, or, in a block, leave that to its end."""
        block = self._block
        if block.ticket is None:
            self._wait(ticket)
        elif ticket > block.ticket:
            block.ticket = ticket

    def note(self, ticket: Ticket) -> None:
        """Have the end of the block wait for a ticket, too; nothing outside of one."""
        block = self._block
        if block.ticket is not None and ticket > block.ticket:
            block.ticket = ticket

    def together(self, act: Callable[[], Answer]) -> Answer:
        """Do something, and wait once, at its end, for all that it has synced and shown.

        Also within another block: who is called by a signal handler in the middle of one has to be told
        nothing that is not true.
        """
        answer, ticket, asked = self._collected(act)
        self._committer.request(asked)
        self._wait(ticket)
        return answer

    def ordered(self, act: Callable[[], Answer]) -> Answer:
        """Do something that nobody is told of, and only ask that it be committed, as its block ends."""
        answer, ticket, asked = self._collected(act)
        block = self._block
        if block.ticket is None:
            self._committer.request(max(ticket, asked))
        else:
            block.asked = max(block.asked, ticket, asked)
        return answer

    def admit(self) -> None:
        """Return once there is room for changes. Raises what keeps them out."""
        self.check_process()
        if not self._committer.is_ready:
            if get_ident() in inside:
                self._committer.admit(self._root)
            else:
                self._entered_admit(self._root)

    def check_process(self) -> None:
        """Raise Closing in a forked child: the threads that commit are the parent's."""
        if self._pid != os.getpid():
            raise Closing(f"{self._root} was opened before the fork: open it in the child")

    def _collected(self, act: Callable[[], Answer]) -> tuple[Answer, Ticket, Ticket]:
        # No context manager: an exception of a signal handler, striking as it is left, would leave the
        # block behind, and later calls would not wait.
        block = self._block
        outer = block.ticket, block.asked
        try:
            block.ticket = block.asked = 0
            answer = act()
            ticket, asked = block.ticket, block.asked
        finally:
            block.ticket, block.asked = outer
        return answer, ticket, asked

    def _wait(self, ticket: Ticket) -> None:
        self.check_process()
        if self._committer.committed.ticket >= ticket:
            return
        if get_ident() in inside:
            self._committer.commit(ticket)
        else:
            self._entered_commit(ticket)
