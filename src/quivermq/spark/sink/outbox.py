"""Sends frames in their order while the next ones are made."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

# One is under way, one is ready: more would only take memory.
_PENDING_MAX = 2


class Outbox:
    """One thread that does what it is given, one after the other. Used in a `with` statement."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quiver-sink")
        self._pending: deque[Future[None]] = deque()
        self._has_failed = False

    def add(self, act: Callable[[], object]) -> None:
        """Have something done, unless something before it goes wrong. Raises what did."""
        while len(self._pending) >= _PENDING_MAX:
            self._pending.popleft().result()
        self._pending.append(self._thread.submit(self._do, act))

    def finish(self) -> None:
        """Return once everything is done. Raises what went wrong."""
        while self._pending:
            self._pending.popleft().result()

    def _do(self, act: Callable[[], object]) -> None:
        if self._has_failed:
            return
        try:
            act()
        except BaseException:
            self._has_failed = True
            raise

    def __enter__(self) -> "Outbox":
        return self

    def __exit__(self, *_: object) -> None:
        # After an error what waits is not done any more; what is under way comes to its end.
        self._thread.shutdown(cancel_futures=True)
