"""Waiting for messages without asking again and again."""

import threading
from _thread import LockType, allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from quivermq.engine.open_topic import OpenTopic
from quivermq.group.group import Group
from quivermq.group.waiters import Waiter, Waiters, leave
from quivermq.reentry import entered

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine

# How late a signal may be noticed.
_LOOK_S = 0.5

T = TypeVar("T")


class WatchedGroup(NamedTuple):
    """A group in one topic, in which somebody waits."""

    topic: OpenTopic
    group: Group

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def is_gone(self) -> bool:
        """Whether the topic was deleted, or closed."""
        return self.topic.is_gone

    def wake_due(self, now_us: int) -> int | None:
        """Let what is due become ready, and wake as many as there is something for.

        Returns when more becomes ready by time alone, if somebody still waits for that.
        """
        self.topic.release(now_us)
        self.group.expire(now_us)
        self.group.waiters.wake(self.group.ready(now_us))
        return self.group.next_event() if self.group.waiters.waiting else None


class Watch:
    """Somebody who wants to be told, once, that there may be something to get."""

    def __init__(self, engine: "Engine", groups: list[WatchedGroup], wake: Callable[[], None]) -> None:
        self.groups = groups
        self._engine = engine
        self._places: list[Waiters] = [engine.catalog.waiters, *(group.waiters for _, group in groups)]
        self._waiter = Waiter(wake)
        for waiters in self._places:
            waiters.wait(self._waiter)

    @entered
    def until_next_event(self) -> float | None:
        """How many seconds nothing can happen by time alone; None when nothing ever will."""
        times = [group.next_event() for _, group in self.groups]
        times += [topic.topic.delays.next_due for topic, _ in self.groups]
        now_us = self._engine.clock.now_us()
        return min(
            (max(0.0, (time - now_us) / 1_000_000) for time in times if time is not None), default=None
        )

    def leave(self, *, pass_on: bool = False) -> None:
        """Stop waiting. With `pass_on`, a wake-up that came meanwhile is handed to somebody else."""
        leave(self._waiter, self._places, pass_on=pass_on)

    @entered
    def wake_next(self) -> None:
        """Wake somebody else for what is still there."""
        now_us = self._engine.clock.now_us()
        for _, group in self.groups:
            if group.waiters.waiting and group.has_ready(now_us):
                group.waiters.wake()

    def wake_others(self) -> None:
        """Woken for one topic, who waited may have been served by another: wake somebody for the first."""
        if len(self.groups) > 1:
            self.wake_next()


def wait_for(
    take: Callable[[], list[T]],
    timeout: float | None,
    engine: "Engine",
    groups: Callable[[], list[WatchedGroup]],
) -> list[T]:
    """What `take` finds, as soon as it finds something; nothing after `timeout` seconds."""
    found = take()
    left = timeout
    while not found and (left is None or left > 0):
        waited, found = _wait_once(take, left, engine, groups())
        if left is not None:
            left -= waited
    return found


def _wait_once(
    take: Callable[[], list[T]],
    left: float | None,
    engine: "Engine",
    groups: list[WatchedGroup],
) -> tuple[float, list[T]]:
    """Wait to be woken, for something to fall due, or for the time to be over, then look again."""
    # A bare lock, which a signal handler that closes the queue can release at any moment.
    woken = allocate_lock()
    woken.acquire()
    watch = Watch(engine, groups, woken.release)
    waited = 0.0
    try:
        # A signal handler that closes the queue may have woken this one, and closes it once it has ended.
        engine.check_open()
        # Somebody may have put between the last look and the wait.
        found = take()
        if not found:
            start = engine.clock.monotonic()
            wait_s = _shortest(watch.until_next_event(), left)
            was_woken = _acquired(woken, wait_s)
            waited = engine.clock.monotonic() - start if was_woken or wait_s is None else wait_s
    except BaseException:
        watch.leave(pass_on=True)
        raise
    watch.leave(pass_on=bool(found))
    if found:
        return waited, found
    try:
        found = take()
    except BaseException:
        watch.wake_next()
        raise
    watch.wake_others()
    return waited, found


def _acquired(lock: LockType, wait_s: float | None) -> bool:
    """Whether the lock was released within so many seconds.

    The main thread waits in parts: a signal that comes between Python's last look and the wait itself is
    noticed only when that ends.
    """
    if threading.current_thread() is not threading.main_thread():
        return lock.acquire(timeout=-1 if wait_s is None else wait_s)
    while wait_s is None or wait_s > _LOOK_S:
        if lock.acquire(timeout=_LOOK_S):
            return True
        wait_s = None if wait_s is None else wait_s - _LOOK_S
    return lock.acquire(timeout=wait_s)


def _shortest(*waits: float | None) -> float | None:
    known = [wait for wait in waits if wait is not None]
    return min(*known, threading.TIMEOUT_MAX) if known else None
