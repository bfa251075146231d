"""What a stream has taken ahead: batches to come, the one in hand, and what the loop got past."""

from collections import deque
from typing import Generic, TypeVar

from quivermq.model.deliveries import LeasedMessage

# What the loop got past is acknowledged after this long at the latest.
ACK_S = 0.05
STREAM_OF_PARENT = "the stream was begun before the fork: begin one in the child"
# A loop that is through with a batch sooner would only be held up by somebody who fetches beside it.
_FAST_S = 0.005

T = TypeVar("T", bound=LeasedMessage)


class WindowBatch(Generic[T]):
    """Messages that came together: how many the loop got past, and how many of those are acknowledged."""

    __slots__ = ("acked", "messages", "passed")

    def __init__(self, messages: list[T]) -> None:
        self.messages = messages
        self.passed = 0
        self.acked = 0

    def to_ack(self, end: int) -> list[T]:
        """What the loop got past since the last ack, without what it settled itself, up to the end'th."""
        return [message for message in self.messages[self.acked : end] if not message.is_settled]

    def rest(self) -> list[T]:
        """What the loop did not get past."""
        return [message for message in self.messages[self.passed :] if not message.is_settled]


Passed = list[tuple[WindowBatch[T], int]]


class Window(Generic[T]):
    """Half of `prefetch` is in hand while the other half is fetched, or all of it for a loop that is fast.

    The stream's lock guards it.
    """

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._ready: deque[WindowBatch[T]] = deque()
        self._passed: list[WindowBatch[T]] = []
        self.in_hand: WindowBatch[T] | None = None
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

    def came(self, messages: list[T], wanted: int) -> None:
        """Take in what was received."""
        self._is_dry = len(messages) <= wanted // 2
        if messages:
            self._ready.append(WindowBatch(messages))

    def begin(self) -> WindowBatch[T] | None:
        """The next batch, None when nothing is there. The one before it is passed."""
        if self.in_hand is not None:
            self._passed.append(self.in_hand)
        self.in_hand = self._ready[0] if self._ready else None
        if self._ready:
            # Only now: what a signal handler raises behind this finds the batch in hand.
            self._ready.popleft()
        return self.in_hand

    def wanted(self) -> int:
        """How many to fetch while the loop is busy."""
        if self._is_dry or self._is_fast:
            return 0
        held = sum(len(batch.messages) for batch in self._held())
        return max(0, min(self.part, self._prefetch - held))

    def passed(self) -> "tuple[list[T], Passed[T]]":
        """What is to be acknowledged now, and what `acked` takes when it is."""
        batches = list(self._passed)
        if self.in_hand is not None and self.in_hand not in batches:
            batches.append(self.in_hand)
        passed = [(batch, batch.passed) for batch in batches]
        return [message for batch, end in passed for message in batch.to_ack(end)], passed

    def acked(self, passed: "Passed[T]") -> None:
        """Those were acknowledged, or cannot be."""
        for batch, end in passed:
            batch.acked = end
        self._passed = [batch for batch in self._passed if batch.acked < batch.passed]

    def rest(self) -> list[T]:
        """What is held and was not passed: to be renewed, or in the end to be given back."""
        return [message for batch in self._held() for message in batch.rest()]

    def _held(self) -> list[WindowBatch[T]]:
        ready = [batch for batch in self._ready if batch is not self.in_hand]
        return ready if self.in_hand is None else [self.in_hand, *ready]
