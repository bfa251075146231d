"""How much goes into one answer, which is made in memory."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

# Messages are listed until they are about this large together; the first one comes in any case.
ANSWER_BYTES = 8 * 1024 * 1024

# About what a message takes in JSON beside its value.
_FIELDS_BYTES = 200


def within(items: Iterable[T], limit: int, size_of: Callable[[T], int]) -> Iterator[T]:
    """The first items, up to `limit`, and no more than fit into an answer."""
    size = 0
    for item in islice(items, limit):
        yield item
        size += size_of(item) + _FIELDS_BYTES
        if size >= ANSWER_BYTES:
            return
