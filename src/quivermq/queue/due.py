"""What comes due again and again, without a clock or a thread of its own: leases to renew together."""

import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
AnyQueue = TypeVar("AnyQueue")
AnyMessage = TypeVar("AnyMessage")
logger = logging.getLogger(__name__)


class Periodic(Generic[T]):
    """Things, each due again after its period. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[Hashable, tuple[T, float, float]] = {}

    def add(self, name: Hashable, item: T, period_s: float, now: float) -> None:
        """From now on it comes due."""
        self._held[name] = (item, period_s, now + period_s)

    def remove(self, name: Hashable) -> None:
        """It comes due no more."""
        self._held.pop(name, None)

    def items(self) -> list[tuple[Hashable, T]]:
        return [(name, item) for name, (item, _, _) in self._held.items()]

    @property
    def next_due(self) -> float | None:
        return min((due for _, _, due in self._held.values()), default=None)

    def take_due(self, now: float) -> list[T]:
        """What is due by now; it is due again a period later."""
        found: list[T] = []
        for name, (item, period_s, due) in list(self._held.items()):
            if due <= now:
                found.append(item)
                self._held[name] = (item, period_s, now + period_s)
        return found


class Renewal(NamedTuple, Generic[AnyQueue, AnyMessage]):
    """Messages of a queue whose leases are kept. Which ones these are, it finds when it is due."""

    queue: AnyQueue
    lease_s: float
    find: Callable[[], list[AnyMessage]]

    @property
    def period_s(self) -> float:
        """A third of the lease: two renewals may fail before it is lost."""
        return self.lease_s / 3


def by_queue(renewals: Iterable[Renewal[AnyQueue, AnyMessage]]) -> list[Renewal[AnyQueue, AnyMessage]]:
    """The same, those of one queue and one length as one. What cannot be found keeps no other from it."""
    found: dict[tuple[int, float], list[Renewal[AnyQueue, AnyMessage]]] = {}
    for renewal in renewals:
        found.setdefault((id(renewal.queue), renewal.lease_s), []).append(renewal)
    return [_joined(same) for same in found.values()]


def _joined(same: list[Renewal[AnyQueue, AnyMessage]]) -> Renewal[AnyQueue, AnyMessage]:
    return same[0]._replace(find=lambda: [message for each in same for message in _found(each)])


def _found(renewal: Renewal[AnyQueue, AnyMessage]) -> list[AnyMessage]:
    try:
        return renewal.find()
    except Exception as error:
        # A frame that cannot be read, for example. Whoever gets to it hears the same.
        logger.warning("could not find the messages whose leases are due: %s", error)
        return []
