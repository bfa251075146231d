"""How much goes into one answer, which is made in memory."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from quivermq.clock import SteadyClock

T = TypeVar("T")

# Messages are listed until they are about this large together; the first one comes in any case.
ANSWER_BYTES = 8 * 1024 * 1024

# About what a message takes in JSON beside its value.
FIELDS_BYTES = 200


# A search looks at no more than this before it answers with where to go on: others want the thread, too.
_SEARCHED_BYTES = 64 * 1024 * 1024
_SEARCHED_S = 0.25


class Patience:
    """How long one call may search. What it has not come to is for the next one."""

    def __init__(self, clock: SteadyClock) -> None:
        self._now = clock.monotonic
        self._end = self._now() + _SEARCHED_S
        self._left_bytes = _SEARCHED_BYTES

    def is_over(self, searched_bytes: int) -> bool:
        """Whether that was enough, now that so many bytes more were searched."""
        self._left_bytes -= searched_bytes
        return self._left_bytes <= 0 or self._now() >= self._end


def within(items: Iterable[T], limit: int, size_of: Callable[[T], int]) -> Iterator[T]:
    """The first items, up to `limit`, and no more than fit into an answer."""
    size = 0
    for item in islice(items, limit):
        yield item
        size += size_of(item) + FIELDS_BYTES
        if size >= ANSWER_BYTES:
            return
