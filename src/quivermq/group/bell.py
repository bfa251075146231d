"""Waking consumers that wait: as many as there are messages, and nobody twice."""

import threading
from collections import deque
from collections.abc import Callable, Iterable


class Waiter:
    """Somebody who waits for a message, at one bell or at many. Woken once."""

    __slots__ = ("_claim", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._claim = threading.Lock()

    def claim(self) -> bool:
        """Whether the caller is the first to want this waiter, be it to wake it or to let it go."""
        return self._claim.acquire(blocking=False)

    def wake(self) -> bool:
        """Wake it. False when it was woken, or has gone away, already."""
        if not self.claim():
            return False
        self._wake()
        return True


class Bell:
    """Where the consumers of a group wait for messages of one topic."""

    def __init__(self) -> None:
        self.waiting: deque[Waiter] = deque()

    def ring(self, count: int = 1) -> None:
        """Wake so many of those who wait."""
        while count > 0:
            try:
                waiter = self.waiting.popleft()
            except IndexError:
                return
            if waiter.wake():
                count -= 1


def leave(waiter: Waiter, bells: Iterable[Bell], *, pass_on: bool = False) -> None:
    """Stop waiting. With `pass_on`, a wake-up that came meanwhile is handed to somebody else."""
    was_woken = not waiter.claim()
    for bell in bells:
        try:
            bell.waiting.remove(waiter)
        except ValueError:
            # It was taken from here to be woken.
            if was_woken and pass_on:
                bell.ring()
