"""Calls of several shards at the same time, and what to make of it when some of them fail."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from quivermq.errors import NotFound, QuiverError

_THREADS = 32

K = TypeVar("K")
T = TypeVar("T")


class Together:
    """The threads of one connection in which calls of several shards run."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="quiver-shards")

    def all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """What each of them returns. When some fail, the error of the first, once all have ended."""
        outcomes = self.outcomes(calls)
        for outcome in outcomes:
            if isinstance(outcome, QuiverError):
                raise outcome
        return [outcome for outcome in outcomes if not isinstance(outcome, QuiverError)]

    def outcomes(self, calls: Sequence[Callable[[], T]]) -> list[T | QuiverError]:
        """What each of them returns, or its error. Other exceptions are raised."""
        if len(calls) == 1:
            return [_outcome(calls[0])]
        if self._process != os.getpid():
            # A fork has the parent's threads by name only.
            self._begin()
        futures = [self._threads.submit(_outcome, call) for call in calls]
        return [future.result() for future in futures]

    def of_each(self, items: Iterable[K], call: Callable[[K], T]) -> list[T]:
        """What a call returns of each of some items."""
        return self.all([partial(call, item) for item in items])

    def of_known(self, items: Iterable[K], call: Callable[[K], T]) -> dict[K, T]:
        """The same of those that know what is asked for. Raises NotFound when none of them does."""
        listed = list(items)
        outcomes = self.outcomes([partial(call, item) for item in listed])
        return known(dict(zip(listed, outcomes, strict=True)))

    def close(self) -> None:
        """End the threads, which have nothing left to do once the shards are closed."""
        self._threads.shutdown(wait=False)


def known(outcomes: Mapping[K, T | QuiverError]) -> dict[K, T]:
    """What was answered. Raises the error of one that failed otherwise than by NotFound, or of all."""
    found: dict[K, T] = {}
    missing: QuiverError | None = None
    for item, outcome in outcomes.items():
        if not isinstance(outcome, QuiverError):
            found[item] = outcome
        elif isinstance(outcome, NotFound):
            missing = missing or outcome
        else:
            raise outcome
    if not found and missing is not None:
        raise missing
    return found


def _outcome(call: Callable[[], T]) -> T | QuiverError:
    try:
        return call()
    except QuiverError as error:
        return error
