"""What comes due again and again, and when. Without a clock or a thread of its own."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Holding(Generic[T]):
    """Things, each due again after its period. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[Hashable, tuple[T, float, float]] = {}

    def hold(self, name: Hashable, item: T, period_s: float, now: float) -> None:
        """From now on it comes due."""
        self._held[name] = (item, period_s, now + period_s)

    def release(self, name: Hashable) -> None:
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
