"""Group commit: threads that want the same expensive thing share it.

Whoever comes first leads: it takes everything that has gathered, commits it in one go, and hands the
lead to the first of those who came meanwhile. There is no thread of its own and no waiting for company:
a group is as large as what arrived during the commit before it.
"""

from _thread import LockType, allocate_lock, get_ident
from collections import deque
from collections.abc import Callable
from copy import copy
from operator import methodcaller
from pathlib import Path
from typing import Generic, TypeVar

from quivermq.errors import QuiverError, StorageFailed

Entry = TypeVar("Entry")

# Waking all at once makes them fight for the interpreter: a few are woken, and each wakes one more.
_WOKEN_AT_ONCE = 2

_release = methodcaller("release")


class GroupCommit(Generic[Entry]):
    """Calls `commit` with the entries of a whole group; it returns the first one's offset.

    Ctrl-C may strike the main thread between any two steps. So waking somebody once too often does no
    harm, and every step that others wait for is repeated on the way out.
    """

    def __init__(self, commit: Callable[[list[Entry]], int], path: Path) -> None:
        self._commit = commit
        self._path = path
        self._lock = allocate_lock()
        self._open: _Group[Entry] = _Group()
        self._led: _Group[Entry] | None = None

    def join(self, entry: Entry) -> int:
        """Return the entry's offset once a commit that has it has ended. Raises what that raised."""
        group = wake = None
        try:
            with self._lock:
                group = self._open
                place = len(group.entries)
                group.entries.append(entry)
                if self._led is None:
                    self._led = group
                    group.leader = get_ident()
                else:
                    wake = allocate_lock()
                    wake.acquire()
                    group.waiting.append(wake)
            if wake is not None:
                self._wait(group, wake)
            if group.leader == get_ident() and not group.done:
                self._lead(group)
            else:
                group.wake(1)
        except BaseException:
            if group is not None:
                self._leave(group, wake)
            raise
        group.check()
        return group.base + place

    def _wait(self, group: "_Group[Entry]", wake: LockType) -> None:
        """Return when the group is committed, or when it is for this thread to do it."""
        wake.acquire()
        while not (group.done or self._takes_lead(group, wake)):
            wake.acquire()

    def _takes_lead(self, group: "_Group[Entry]", wake: LockType) -> bool:
        """Whether this thread leads the group now; otherwise it was woken too often and waits on."""
        with self._lock:
            if group.leader is None:
                group.leader = get_ident()
            if group.done or group.leader == get_ident():
                return True
            group.waiting.append(wake)
            return False

    def _leave(self, group: "_Group[Entry]", wake: LockType | None) -> None:
        """Go away without leaving the others waiting for ever."""
        with self._lock:
            if wake is not None and wake in group.waiting:
                group.waiting.remove(wake)
                return
            if group.leader is None:
                group.leader = get_ident()
        if group.leader == get_ident() and not group.done:
            self._lead(group)
        self._finish(group)

    def _lead(self, group: "_Group[Entry]") -> None:
        try:
            with self._lock:
                self._open = _Group()
            group.base = self._commit(group.entries)
        except QuiverError as error:
            group.error = error
        finally:
            if group.base < 0 and group.error is None:
                # Something unforeseen is on its way up.
                group.error = StorageFailed("the commit was interrupted", path=self._path)
            group.done = True
            self._finish(group)

    def _finish(self, group: "_Group[Entry]") -> None:
        """Hand the lead on and wake those who waited for a group that is done."""
        if not group.done:
            return
        with self._lock:
            if self._open is group:
                self._open = _Group()
            if self._led in (group, self._open):
                self._led = self._open if self._open.waiting else None
                if self._open.leader is None:
                    self._open.wake(1)
        group.wake(_WOKEN_AT_ONCE)


class _Group(Generic[Entry]):
    """Those who are committed together."""

    __slots__ = ("_wake_one", "base", "done", "entries", "error", "leader", "waiting")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.waiting: deque[LockType] = deque()
        # Taking one out and waking it must be a single step, which only one in C is.
        self._wake_one = map(_release, iter(self.waiting.popleft, None))
        self.leader: int | None = None
        self.done = False
        self.base = -1
        self.error: QuiverError | None = None

    def wake(self, count: int) -> None:
        """Wake so many of those who wait, if there are any."""
        for _ in range(count):
            try:
                next(self._wake_one)
            except IndexError:
                return

    def check(self) -> None:
        if self.error is not None:
            # A copy, because one traceback cannot belong to many threads.
            raise copy(self.error) from self.error
