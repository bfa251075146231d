"""Group commit: threads that want the same expensive thing share it.

Whoever comes first leads: it takes everything that has gathered, commits it in one go, and hands the
lead to the first of those who came meanwhile. There is no thread of its own and no waiting for company:
a group is as large as what arrived during the commit before it.
"""

from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Generic, TypeVar

from quivermq.errors import QuiverError, StorageFailed

Entry = TypeVar("Entry")

# Waking all at once makes them fight for the interpreter: a few are woken, and each wakes one more.
_WOKEN_AT_ONCE = 2


class GroupCommit(Generic[Entry]):
    """Calls `commit` with the entries of a whole group; it returns the first one's offset."""

    def __init__(self, commit: Callable[[list[Entry]], int], path: Path) -> None:
        self._commit = commit
        self._path = path
        self._lock = allocate_lock()
        self._open: _Group[Entry] = _Group()
        self._is_led = False

    def join(self, entry: Entry) -> int:
        """Return the entry's offset once a commit that has it has ended. Raises what that raised."""
        group = wake = None
        leads = waits = False
        try:
            with self._lock:
                group = self._open
                place = len(group.entries)
                group.entries.append(entry)
                if self._is_led:
                    wake = allocate_lock()
                    wake.acquire()
                    group.waiting.append(wake)
                    waits = True
                else:
                    leads = self._is_led = True
            if wake is not None:
                wake.acquire()
            self._proceed(group)
        except BaseException:
            if group is not None:
                self._leave(group, wake, leads or waits)
            raise
        group.check()
        return group.base + place

    def _leave(self, group: "_Group[Entry]", wake: LockType | None, is_counted_on: bool) -> None:
        """Go away without leaving the others waiting for ever.

        Somebody pressed Ctrl-C, perhaps in the moment in which this thread took the lead or was
        woken: whatever it should have done then, it does before it goes.
        """
        with self._lock:
            if wake is not None and wake in group.waiting:
                group.waiting.remove(wake)
                return
        if is_counted_on:
            self._proceed(group)

    def _proceed(self, group: "_Group[Entry]") -> None:
        if group.done:
            group.wake(1)
        else:
            self._lead(group)

    def _lead(self, group: "_Group[Entry]") -> None:
        try:
            with self._lock:
                self._open = _Group()
            group.base = self._commit(group.entries)
        except QuiverError as error:
            group.error = error
        finally:
            # Also when something unforeseen is on its way up: the others must not wait for ever.
            if group.base < 0 and group.error is None:
                group.error = StorageFailed("the commit was interrupted", path=self._path)
            group.done = True
            with self._lock:
                if self._open is group:
                    self._open = _Group()
                self._is_led = bool(self._open.waiting)
                successor = self._open.waiting.popleft() if self._is_led else None
            if successor is not None:
                successor.release()
            if group.waiting:
                group.wake(_WOKEN_AT_ONCE)


class _Group(Generic[Entry]):
    """Those who are committed together."""

    __slots__ = ("base", "done", "entries", "error", "waiting")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.waiting: deque[LockType] = deque()
        self.done = False
        self.base = -1
        self.error: QuiverError | None = None

    def wake(self, count: int) -> None:
        for _ in range(count):
            try:
                self.waiting.popleft().release()
            except IndexError:
                return

    def check(self) -> None:
        if self.error is not None:
            # A copy, because one traceback cannot belong to many threads.
            raise copy(self.error) from self.error
