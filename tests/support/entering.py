"""A thread that is inside of a call, for as long as a test says."""

from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager

from quivermq.reentry import finish, inside, postponed, refusal


@contextmanager
def entering() -> Iterator[None]:
    """What `entered` does around a method, around a block."""
    thread = get_ident()
    if thread in inside:
        raise refusal()
    inside.add(thread)
    try:
        yield
    finally:
        inside.discard(thread)
        if postponed:
            finish(thread)
