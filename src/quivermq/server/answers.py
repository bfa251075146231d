"""How much goes into one answer, which is made in memory."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from quivermq.clock import SteadyClock
from quivermq.engine.hosted import Hosted

T = TypeVar("T")

# Messages are listed until they are about this large together; the first one comes in any case.
ANSWER_BYTES = 8 * 1024 * 1024

# About what a message takes in JSON beside its value.
FIELDS_BYTES = 200

# How often a message is in memory while an answer is made: as frames, or in JSON.
FRAME_COPIES, JSON_COPIES = 2, 4

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


def average_bytes(hosted: Hosted) -> int:
    """About how large a message of a topic is, as it is stored."""
    logs = [log for partition in hosted.topic.partitions for log in partition.logs if log is not None]
    messages = sum(log.end - log.start for log in logs)
    return sum(log.size_bytes for log in logs) // messages if messages else 1


def making_bytes(hosted: Hosted, limit: int, copies: int) -> int:
    """About how much memory it takes to make an answer of up to so many messages of a topic.

    `copies` is how often each of them is there then: read, taken apart, put into words, put together.
    """
    average = average_bytes(hosted) + FIELDS_BYTES
    return max(average, min(limit * average, ANSWER_BYTES)) * copies


def within(items: Iterable[T], limit: int, size_of: Callable[[T], int]) -> Iterator[T]:
    """The first items, up to `limit`, and no more than fit into an answer."""
    size = 0
    for item in islice(items, limit):
        yield item
        size += size_of(item) + FIELDS_BYTES
        if size >= ANSWER_BYTES:
            return
