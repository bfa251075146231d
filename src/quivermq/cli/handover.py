"""Handing output over to whoever reads it, and knowing what was taken.

A file or a terminal has what was written and flushed. A pipe only keeps it for the next program, which may
go away and never read it. Linux tells: a pipe that is cut down to one page takes a write again when it is
empty, so what was written before has been read. One message at a time goes through such a pipe, because a
reader that wants one line, as `head -1` does, reads all that is there.
"""

import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from quivermq.cli.outgoing import output_number, write_all

try:
    import fcntl
    import termios
except ImportError:  # A system without them has no such pipes either.
    _PIPES_TELL = False
else:
    _PIPES_TELL = hasattr(fcntl, "F_SETPIPE_SZ")

# In a file or a terminal, so many messages are written at once.
_FILE_MESSAGES = 10
_PAGE_BYTES = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096
# A reader that takes longer is slow, and the time is used for what waits.
_SLOW_MS = 50
# How late a signal may be noticed that comes just before a wait.
_TURN_MS = 500
# Between two looks at a pipe that was not cut down.
_LOOK_MS = 5
# An int of C, as the kernel counts bytes in.
_ZERO = bytes(4)


class Handover:
    """A file, a terminal, or a pipe that does not tell: what is written and flushed is taken."""

    # How many messages are given at once.
    step = _FILE_MESSAGES

    def __init__(self) -> None:
        self._written: object = None

    def give(self, what: object, data: bytes, while_waiting: Callable[[], None]) -> None:  # noqa: ARG002 - A file never lets it wait.
        """Return once the reader has the data. Raises BrokenPipeError when nobody reads any more.

        `while_waiting` is called while the reader lets this wait.
        """
        write_all(data)
        self._written = what

    def is_taken(self, what: object) -> bool:
        """Whether the reader has what was given by this name, also when `give` was interrupted."""
        return what is self._written


class PipeHandover(Handover):
    """A pipe of one page."""

    step = 1

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self._room = select.poll()
        self._room.register(number, select.POLLOUT)
        self._end = select.poll()
        self._end.register(number, 0)

    def give(self, what: object, data: bytes, while_waiting: Callable[[], None]) -> None:
        # A page at most, which fits, so that all waiting is done in `_wait`, where a signal is noticed.
        start = self._write(data[:_PAGE_BYTES]) if data else 0
        while start < len(data):
            self._wait(while_waiting)
            start += self._write(data[start : start + _PAGE_BYTES])
        self._written = what
        self._wait(while_waiting)

    def is_taken(self, what: object) -> bool:
        return super().is_taken(what) and not self._has_unread()

    def shrink(self) -> None:
        """Cut the pipe down to a page, unless others wrote more than that, which has to be read first."""
        with suppress(OSError):
            fcntl.fcntl(self._number, fcntl.F_SETPIPE_SZ, _PAGE_BYTES)

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._number, data)
        except BlockingIOError:
            # Full of what others wrote, and somebody who shares it has said that no write may wait.
            return 0

    def _wait(self, while_waiting: Callable[[], None]) -> None:
        """Return once the pipe is empty."""
        if self._is_read(_SLOW_MS):
            return
        while_waiting()
        while not self._is_read(_TURN_MS):
            continue

    def _is_read(self, wait_ms: int) -> bool:
        """Whether the pipe is empty, or is so within the time."""
        events = self._room.poll(wait_ms)
        if not events:
            return False
        if not self._has_unread():
            return True
        if events[0][1] & select.POLLERR:
            raise BrokenPipeError
        # There is room beside what was not read: others write into the pipe, or have made it larger.
        self.shrink()
        self._end.poll(_LOOK_MS)
        return False

    def _has_unread(self) -> bool:
        return fcntl.ioctl(self._number, termios.FIONREAD, _ZERO) != _ZERO


@contextmanager
def handing_over() -> Iterator[Handover]:
    """Standard output, which is a pipe as before once this ends."""
    number = output_number()
    if number is None or not _PIPES_TELL or not stat.S_ISFIFO(os.fstat(number).st_mode):
        yield Handover()
        return
    sys.stdout.flush()
    handover = PipeHandover(number)
    before_bytes = fcntl.fcntl(number, fcntl.F_GETPIPE_SZ)
    try:
        handover.shrink()
        yield handover
    finally:
        with suppress(OSError):
            fcntl.fcntl(number, fcntl.F_SETPIPE_SZ, before_bytes)
