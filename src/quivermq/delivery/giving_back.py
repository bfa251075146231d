"""Giving back what an orderly stop leaves unfinished: no attempt counts, and others get it at once."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from quivermq.delivery.delivery import Delivery
from quivermq.errors import Closing, LeaseExpired, QuiverError
from quivermq.reentry import soon

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Releases(Protocol):
    """A queue, embedded or over the wire."""

    def release(self, held: list[Delivery]) -> None: ...


def is_stop(error: BaseException) -> bool:
    """Whether an exception ends the program, a task or a loop, and so says nothing about a message.

    Those are KeyboardInterrupt, SystemExit, GeneratorExit and asyncio's CancelledError, which for this
    reason are no `Exception`.
    """
    return not isinstance(error, Exception)


def give_back(
    queue: Releases,
    messages: Iterable[Delivery],
    let_go: Callable[[], None] = lambda: None,
) -> None:
    """Release what was not settled, and never fail: what cannot be given back has a lease that ends.

    `let_go` is called first: whoever renews the leases is to stop. For generators, which the garbage
    collector may close in the middle of another call: then it waits for the end of that.
    """
    held = [message for message in messages if not message.is_settled]

    def release() -> None:
        let_go()
        release_quietly(queue.release, held)

    soon(release)


def release_quietly(release: Callable[[list[T]], None], held: Sequence[T]) -> None:
    """Release messages, and only log what keeps them from it."""
    if not held:
        return
    try:
        release(list(held))
    except (LeaseExpired, Closing):
        # A lease that is lost needs no giving back.
        return
    except QuiverError as error:
        logger.warning("%d messages wait for their leases to end: %s", len(held), error)
