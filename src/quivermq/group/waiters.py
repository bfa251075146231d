"""Waking consumers that wait: as many as there are messages, and nobody twice."""

import threading
from collections import deque
from collections.abc import Callable, Iterable


class Waiter:
    """Somebody who waits for a message, of one group or of many. Woken once."""

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
    """Those who wait for the same, such as the consumers of a group for messages of one topic.

    While somebody waits here, it is in `waited`, if it was given one: so whoever wakes those of a thousand
    groups need not look at all the groups for which nobody waits.
    """

    def __init__(self, waited: "set[Waiters] | None" = None) -> None:
        self.waiting: deque[Waiter] = deque()
        self._waited = waited

    def wait(self, waiter: Waiter) -> None:
        """Let somebody wait here."""
        self.waiting.append(waiter)
        if self._waited is not None:
            self._waited.add(self)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` once, from whatever thread, when those here are woken. Returns what ends the wait."""
        waiter = Waiter(wake)
        self.wait(waiter)
        return lambda: leave(waiter, [self])

    def wake(self, count: int = 1) -> None:
        """Wake so many of those who wait."""
        while count > 0:
            try:
                waiter = self.waiting.popleft()
            except IndexError:
                return
            if waiter.wake():
                count -= 1

    def wake_all(self) -> None:
        """Wake everybody who waits now."""
        self.wake(len(self.waiting))


def wake_waited(waited: set[Waiters], count: int) -> None:
    """Wake `count` in each place where somebody waits, and forget the places where nobody does any more."""
    for waiters in tuple(waited):
        waiters.wake(count)
        if not waiters.waiting:
            waited.discard(waiters)
            # Somebody may have come in between, who was not to be forgotten.
            if waiters.waiting:
                waited.add(waiters)


def leave(waiter: Waiter, places: Iterable[Waiters], *, pass_on: bool = False) -> None:
    """Stop waiting. With `pass_on`, a wake-up that came meanwhile is handed to somebody else."""
    was_woken = not waiter.claim()
    for waiters in places:
        try:
            waiters.waiting.remove(waiter)
        except ValueError:
            # It was taken from here to be woken.
            if was_woken and pass_on:
                waiters.wake()
