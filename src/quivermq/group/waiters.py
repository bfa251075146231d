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


class Waiters:
    """Where the consumers of a group wait for messages of one topic.

    A bell at which somebody waits is in `waited`, if it was given one: so whoever has something for all
    bells need not look at those, perhaps thousands, at which nobody does.
    """

    def __init__(self, waited: "set[Waiters] | None" = None) -> None:
        self.waiting: deque[Waiter] = deque()
        self._waited = waited

    def wait(self, waiter: Waiter) -> None:
        """Let somebody wait here."""
        self.waiting.append(waiter)
        if self._waited is not None:
            self._waited.add(self)

    def ring(self, count: int = 1) -> None:
        """Wake so many of those who wait."""
        while count > 0:
            try:
                waiter = self.waiting.popleft()
            except IndexError:
                return
            if waiter.wake():
                count -= 1


def wake_all(waited: set[Waiters], count: int) -> None:
    """Ring all the bells at which somebody waits, and forget the others."""
    for bell in tuple(waited):
        bell.ring(count)
        if not bell.waiting:
            waited.discard(bell)
            # Somebody may have come in between, who was not to be forgotten.
            if bell.waiting:
                waited.add(bell)


def leave(waiter: Waiter, bells: Iterable[Waiters], *, pass_on: bool = False) -> None:
    """Stop waiting. With `pass_on`, a wake-up that came meanwhile is handed to somebody else."""
    was_woken = not waiter.claim()
    for bell in bells:
        try:
            bell.waiting.remove(waiter)
        except ValueError:
            # It was taken from here to be woken.
            if was_woken and pass_on:
                bell.ring()
