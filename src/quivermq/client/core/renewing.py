"""Leases that are renewed together."""

import logging
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

Queue = TypeVar("Queue")
Message = TypeVar("Message")
logger = logging.getLogger(__name__)


class Renewal(NamedTuple, Generic[Queue, Message]):
    """Messages of a queue whose leases are kept. Which ones these are, it finds when it is due."""

    queue: Queue
    lease_s: float
    find: Callable[[], list[Message]]

    @property
    def period_s(self) -> float:
        """A third of the lease: two renewals may fail before it is lost."""
        return self.lease_s / 3


def by_queue(
    renewals: Iterable[Renewal[Queue, Message]],
) -> list[Renewal[Queue, Message]]:
    """The same, those of one queue and one length as one. What cannot be found keeps no other from it."""
    found: dict[tuple[int, float], list[Renewal[Queue, Message]]] = {}
    for renewal in renewals:
        found.setdefault((id(renewal.queue), renewal.lease_s), []).append(renewal)
    return [_joined(same) for same in found.values()]


def _joined(same: list[Renewal[Queue, Message]]) -> Renewal[Queue, Message]:
    return same[0]._replace(find=lambda: [message for each in same for message in _found(each)])


def _found(renewal: Renewal[Queue, Message]) -> list[Message]:
    try:
        return renewal.find()
    except Exception as error:
        # A frame that cannot be read, for example. Whoever gets to it hears the same.
        logger.warning("could not find the messages whose leases are due: %s", error)
        return []
