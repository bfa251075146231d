"""Long work that lets others have their turn."""

import time
from collections.abc import Collection, Iterator
from typing import TypeVar

T = TypeVar("T")

# Some milliseconds of work.
_ITEMS = 100


def in_turns(items: Collection[T]) -> Iterator[T]:
    """The items one by one, for work on many of them that nobody waits for as much as for a put.

    A thread that computes keeps the interpreter for some milliseconds whenever another one wants it, and
    that one may want it several times for one message. So here it is given away now and then.
    """
    if len(items) <= _ITEMS:
        yield from items
        return
    for number, item in enumerate(items, 1):
        yield item
        if number % _ITEMS == 0:
            time.sleep(0)
