"""Threads that help, and waiting for them, where the exception of a signal handler may strike at any step.

Python's own conditions, events and the start of its threads enter a lock by code that is written in Python.
An exception that strikes behind the entering and before the block leaves that lock locked for ever, and
whoever wants it next hangs. A lock itself is entered in one step, which nothing interrupts.
"""

import threading
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn


class Condition(threading.Condition):
    """A condition that is waited for and notified inside of `with condition.lock`."""

    def __init__(self, lock: "LockType | threading.RLock | None" = None) -> None:
        # Reentrant by default: a generator that was forgotten is closed by whichever thread collects it.
        self.lock = threading.RLock() if lock is None else lock
        super().__init__(self.lock)

    def wait(self, timeout: float | None = None) -> bool:
        try:
            return super().wait(timeout)
        except BaseException:
            # Struck right behind letting go of the lock, before whatever would take it again.
            if not self._is_owned():  # type: ignore[attr-defined]
                self.lock.acquire()
            raise

    def __enter__(self) -> NoReturn:
        raise TypeError("enter the lock of the condition: an exception cannot strike in there")


class Latch:
    """What is set once and for all, by anybody and at any moment."""

    def __init__(self) -> None:
        self._is_set = False
        self._unset = allocate_lock()
        self._unset.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        with suppress(RuntimeError):  # It was set before.
            self._unset.release()

    def wait(self, timeout: float) -> bool:
        """Return when it is set, or after so many seconds; whether it is."""
        if not self._is_set and self._unset.acquire(timeout=timeout):
            with suppress(RuntimeError):
                self._unset.release()
        return self._is_set


class Helper:
    """A thread that does some work beside the others. It has to end by itself when it is told."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_started = False
        self._is_refused = False
        # Held until the thread runs, or never will.
        self._beginning = allocate_lock()
        self._beginning.acquire()
        # Whoever has it is the one that starts the thread: Python lets two of them run it twice.
        self._starting = allocate_lock()

    def start(self) -> None:
        """Let it run, unless it does already."""
        if not self._is_started or self._is_refused:
            self._is_refused = False
            # Another thread waits for it to begin. If this is interrupted, the next start is one too many.
            start_new_thread(self._begin, ())
            self._is_started = True

    def join(self) -> None:
        """Return once it has ended: at once when it was never started, or is who asks."""
        if not self._is_started or self._thread is threading.current_thread():
            return
        with self._beginning:
            pass
        if self._thread.ident is not None:
            self._thread.join()

    def is_over(self) -> bool:
        """Whether it was started and has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def _begin(self) -> None:
        if not self._starting.acquire(blocking=False):
            return
        try:
            self._thread.start()
        except RuntimeError:
            # The system has no room for it: the next start tries again.
            self._is_refused = True
            self._starting.release()
            self._let_join()

    def _run(self) -> None:
        self._let_join()
        self._work()

    def _let_join(self) -> None:
        with suppress(RuntimeError):
            self._beginning.release()
