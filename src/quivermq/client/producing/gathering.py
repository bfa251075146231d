"""Where messages wait for their frame: by lane, in order, within limits. Guarded by the producer's lock."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from quivermq.client.producing.batch import Lane, ProducerBatch
from quivermq.clock import Clock

# While the sender is busy a batch goes on growing, so that a busy producer sends few and large ones.
_GROWTH = 10


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is sent, and how large it may become."""

    linger_s: float
    messages: int
    bytes: int


class Gathering:
    """Open and full batches of every lane; the oldest that is due goes first."""

    def __init__(self, limits: BatchLimits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._lanes: dict[Lane, deque[ProducerBatch]] = {}
        self._turns = count()
        self.buffered_bytes = 0
        # Where messages go that say nothing about it: to one partition for a whole batch.
        self.plain: ProducerBatch | None = None

    def open_plain(self, partitions: int) -> ProducerBatch:
        """The next batch of messages that may go anywhere."""
        self.plain = self.open_batch((next(self._turns) % partitions, "normal"))
        return self.plain

    def open_batch(self, lane: Lane) -> ProducerBatch:
        """The batch of a lane that takes messages now."""
        waiting = self._lanes.setdefault(lane, deque())
        if waiting and not self._is_full(waiting[-1]):
            return waiting[-1]
        batch = ProducerBatch(lane, self._clock.monotonic(), self._clock.now_us())
        waiting.append(batch)
        return batch

    def grown(self, batch: ProducerBatch) -> bool:
        """Look at a batch that has become large enough. Whether it is due by that, and was not before."""
        if self._is_full(batch) and batch is self.plain:
            self.plain = None
        was_due, batch.is_due = batch.is_due, True
        return not was_due

    def _is_full(self, batch: ProducerBatch) -> bool:
        return batch.bytes >= self.limits.bytes or len(batch.values) >= self.limits.messages * _GROWTH

    def take_due(self) -> ProducerBatch | None:
        """The oldest batch that is due, which takes no more messages from now on."""
        latest = self._clock.monotonic() - self.limits.linger_s
        due = [batch for batch in self._heads() if batch.is_due or batch.born_at <= latest]
        if not due:
            return None
        batch = min(due, key=lambda batch: batch.born_at)
        waiting = self._lanes[batch.lane]
        waiting.popleft()
        if not waiting:
            del self._lanes[batch.lane]
        if batch is self.plain:
            self.plain = None
        return batch

    def wait_s(self) -> float | None:
        """How long until a batch is due by its age; None while there is none."""
        oldest = min((batch.born_at for batch in self._heads()), default=None)
        if oldest is None:
            return None
        return max(0.0, oldest + self.limits.linger_s - self._clock.monotonic())

    def hurry(self) -> list[ProducerBatch]:
        """Make everything due, and return it."""
        batches = [batch for waiting in self._lanes.values() for batch in waiting]
        for batch in batches:
            batch.is_due = True
        return batches

    def _heads(self) -> Iterator[ProducerBatch]:
        return (waiting[0] for waiting in self._lanes.values())
