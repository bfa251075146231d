"""Being told to stop, by a program that waits for it: in order, as by Ctrl-C."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def handling(names: tuple[str, ...], handler: Callable[[int, object], None]) -> Iterator[None]:
    """Let a handler have these signals, as far as the system has them; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def stopping_orderly() -> Iterator[None]:
    """Let SIGTERM, or a terminal that is closed, end the block by an exception, so that what it holds is
    given back."""

    def stop(number: int, _: object) -> None:
        # As a shell tells that a signal ended a program.
        sys.exit(128 + number)

    with handling(("SIGTERM", "SIGHUP"), stop):
        yield
