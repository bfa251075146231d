"""What a stream has taken ahead: batches to come, the one in hand, and what the loop got past."""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

# What the loop got past is acknowledged after this long at the latest.
TELL_S = 0.05
# A loop that is through with a batch sooner would only be held up by somebody who fetches beside it.
_FAST_S = 0.005


class Settled(Protocol):
    """A delivery, of either kind."""

    @property
    def is_settled(self) -> bool: ...


T = TypeVar("T", bound=Settled)


class Batch(Generic[T]):
    """Messages that came together. They are made when the loop, or a renewal, gets to them."""

    __slots__ = ("_make", "_messages", "_told", "count", "passed")

    def __init__(self, count: int, make: Callable[[], list[T]]) -> None:
        self.count = count
        self.passed = 0
        self._told = 0
        self._make = make
        self._messages: list[T] | None = None

    @property
    def messages(self) -> list[T]:
        if self._messages is None:
            self._messages = self._make()
        return self._messages

    def untold(self, end: int) -> list[T]:
        """What the loop got past since `told`, without what it settled itself, up to the end'th."""
        if self._told == end:
            return []
        return [message for message in self.messages[self._told : end] if not message.is_settled]

    def told(self, end: int) -> None:
        """So many were acknowledged."""
        self._told = end

    @property
    def is_told(self) -> bool:
        return self._told == self.passed

    def rest(self) -> list[T]:
        """What the loop did not get past."""
        return [message for message in self.messages[self.passed :] if not message.is_settled]


Told = list[tuple[Batch[T], int]]


class Window(Generic[T]):
    """Half of `prefetch` is in hand while the other half is fetched, or all of it for a loop that is fast.

    The stream's lock guards it.
    """

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._ready: deque[Batch[T]] = deque()
        self._passed: list[Batch[T]] = []
        self.in_hand: Batch[T] | None = None
        # Whether the last answer was short, so that there is nothing to fetch ahead.
        self._is_dry = False
        self._is_fast = False

    @property
    def part(self) -> int:
        """How many are asked for at a time."""
        return self._prefetch if self._is_fast else (self._prefetch + 1) // 2

    def took(self, seconds: float) -> None:
        """The loop was through with a batch after so long."""
        self._is_fast = seconds < _FAST_S

    def came(self, batch: Batch[T], wanted: int) -> None:
        """Take in what was received."""
        self._is_dry = batch.count <= wanted // 2
        if batch.count:
            self._ready.append(batch)

    def begin(self) -> Batch[T] | None:
        """The next batch, None when nothing is there. The one before it is passed."""
        if self.in_hand is not None:
            self._passed.append(self.in_hand)
        self.in_hand = self._ready.popleft() if self._ready else None
        return self.in_hand

    def wanted(self) -> int:
        """How many to fetch while the loop is busy."""
        if self._is_dry or self._is_fast:
            return 0
        held = sum(batch.count for batch in self._held())
        return max(0, min(self.part, self._prefetch - held))

    def passed(self) -> "tuple[list[T], Told[T]]":
        """What is to be acknowledged now, and what to tell `told` when it is."""
        batches = self._passed if self.in_hand is None else [*self._passed, self.in_hand]
        told = [(batch, batch.passed) for batch in batches]
        return [message for batch, end in told for message in batch.untold(end)], told

    def told(self, told: "Told[T]") -> None:
        """Those were acknowledged, or cannot be."""
        for batch, end in told:
            batch.told(end)
        self._passed = [batch for batch in self._passed if not batch.is_told]

    def rest(self) -> list[T]:
        """What is held and was not passed: to be renewed, or in the end to be given back."""
        return [message for batch in self._held() for message in batch.rest()]

    def _held(self) -> list[Batch[T]]:
        return [*self._ready] if self.in_hand is None else [self.in_hand, *self._ready]
