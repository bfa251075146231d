"""Which leases are to be renewed, and when. Without a clock or a thread of its own."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Holding(Generic[T]):
    """What is held, each due again after a third of its lease. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[Hashable, tuple[T, float, float]] = {}

    def hold(self, name: Hashable, item: T, lease_s: float, now: float) -> None:
        """Renew from now on."""
        self._held[name] = (item, lease_s, now + lease_s / 3)

    def release(self, name: Hashable) -> None:
        """Renew no more."""
        self._held.pop(name, None)

    @property
    def next_due(self) -> float | None:
        return min((due for _, _, due in self._held.values()), default=None)

    def take_due(self, now: float) -> dict[float, list[T]]:
        """What is due by now, by the length of its lease; it is due again a third of that later."""
        found: dict[float, list[T]] = {}
        for name, (item, lease_s, due) in list(self._held.items()):
            if due <= now:
                found.setdefault(lease_s, []).append(item)
                self._held[name] = (item, lease_s, now + lease_s / 3)
        return found
